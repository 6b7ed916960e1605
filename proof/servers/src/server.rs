//! What there is to know about a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::certificates::Certificates;
use crate::install::Install;
use crate::process::Stop;
use crate::site::Site;

/// How to get a server, start it, ask it and stop it.
#[derive(Clone, Debug)]
pub struct Server {
    /// What it is called, on the command line and in folders.
    pub name: &'static str,
    /// Where its program comes from.
    pub install: Install,
    /// The user it runs as when we are root, for servers that refuse root.
    pub account: Option<&'static str>,
    /// Makes what the data folder needs before the first start.
    pub prepare: fn(&Self, &Site) -> Result<()>,
    /// The command that serves in the foreground.
    pub launch: fn(&Self, &Site) -> Result<Command>,
    /// One real request. An open port proves nothing: the server may still be recovering.
    pub health: fn(&Site) -> Result<()>,
    /// How long it may take until a request succeeds.
    pub patience: Duration,
    /// How it is asked to end.
    pub stop: Stop,
    /// The start of the environment variables that tell tests about it, such as `SEMEL_TEST_REDIS`.
    pub variable: &'static str,
    /// Its address.
    pub url: fn(u16) -> String,
    /// Further arguments, behind those of `launch`.
    pub args: Vec<String>,
    /// What it proves itself with; without, it speaks plainly.
    pub certificates: Option<Certificates>,
}

impl Server {
    /// With further arguments: `--name value` for Redis, `-c name=value` for PostgreSQL.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Speaks TLS too: PostgreSQL on its port, Redis on [`Running::tls_port`](crate::Running::tls_port).
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// The program, installed if it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be installed.
    pub fn install(&self, tools: &Path) -> Result<PathBuf> {
        self.given().map_or_else(|| self.install.ensure(tools), Ok)
    }

    /// The program, where it is already.
    ///
    /// # Errors
    ///
    /// When it is missing; says who installs it.
    pub fn program(&self, tools: &Path) -> Result<PathBuf> {
        self.given().or_else(|| self.install.find(tools)).with_context(|| {
            format!("no {0} here: run it through `cargo xtask test`, or `cargo xtask servers install {0}` first", self.name)
        })
    }

    /// The variable that holds its address.
    #[must_use]
    pub fn url_variable(&self) -> String {
        format!("{}_URL", self.variable)
    }

    /// The variable that holds its program's path.
    #[must_use]
    pub fn program_variable(&self) -> String {
        format!("{}_PROGRAM", self.variable)
    }

    fn given(&self) -> Option<PathBuf> {
        std::env::var_os(self.program_variable()).map(PathBuf::from).filter(|file| file.is_file())
    }
}
