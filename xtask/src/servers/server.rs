//! What xtask has to know about a server.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::servers::install::Install;
use crate::servers::process::Stop;
use crate::servers::site::Site;

/// How to get a server, start it, ask it and stop it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) install: Install,
    /// The user it runs as when xtask is root, for servers that refuse root.
    pub(crate) account: Option<&'static str>,
    /// Prepares the data folder and returns the command that serves in the foreground.
    pub(crate) launch: fn(&Site) -> Result<Command>,
    /// One real request. An open port proves nothing: the server may still be recovering.
    pub(crate) health: fn(&Site) -> Result<()>,
    /// How long it may take until a request succeeds.
    pub(crate) patience: Duration,
    pub(crate) stop: Stop,
    /// The environment variable that tells tests its address.
    pub(crate) variable: &'static str,
    pub(crate) url: fn(u16) -> String,
}
