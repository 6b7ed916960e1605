//! The description of a server: how it is installed, started, checked and stopped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::certificates::Certificates;
use crate::install::Install;
use crate::process::StopSignal;
use crate::site::ServerSite;

/// How to install, start, check and stop a server.
#[derive(Clone, Debug)]
pub struct TestServer {
    /// Its name, on the command line and in folder names.
    pub name: &'static str,
    /// The source of its program.
    pub install: Install,
    /// The user that it runs as when we are root, for servers that refuse root.
    pub account: Option<&'static str>,
    /// Prepares the data folder before the first start.
    pub prepare: fn(&Self, &ServerSite) -> Result<()>,
    /// The command that runs it in the foreground.
    pub launch: fn(&Self, &ServerSite) -> Result<Command>,
    /// Sends one real request. An open port proves nothing: the server may still be recovering.
    pub health: fn(&ServerSite) -> Result<()>,
    /// How long it may take until a request succeeds.
    pub patience: Duration,
    /// Its stop signal.
    pub stop: StopSignal,
    /// The prefix of the environment variables for tests, such as `SEMEL_TEST_REDIS`.
    pub variable: &'static str,
    /// Its URL.
    pub url: fn(u16) -> String,
    /// Further arguments, after those of `launch`.
    pub args: Vec<String>,
    /// Its certificates. `None`: no TLS.
    pub certificates: Option<Certificates>,
}

impl TestServer {
    /// Adds arguments: `--name value` for Redis, `-c name=value` for PostgreSQL, `--override name=value` for Kafka.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Enables TLS: PostgreSQL on its port, Redis on [`Running::tls_port`](crate::Running::tls_port).
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// The path of the program, for Kafka of its folder with jars. Installs it if it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be installed.
    pub fn install(&self, tools: &Path) -> Result<PathBuf> {
        self.given().map_or_else(|| self.install.ensure(tools), Ok)
    }

    /// The path of the installed program.
    ///
    /// # Errors
    ///
    /// When it is missing. The message names the command that installs it.
    pub fn program(&self, tools: &Path) -> Result<PathBuf> {
        self.given().or_else(|| self.install.find(tools)).with_context(|| {
            format!("no {0} here: run it through `cargo xtask test`, or `cargo xtask servers install {0}` first", self.name)
        })
    }

    /// The variable that holds its URL.
    #[must_use]
    pub fn url_variable(&self) -> String {
        format!("{}_URL", self.variable)
    }

    /// The variable that holds the path of its program.
    #[must_use]
    pub fn program_variable(&self) -> String {
        format!("{}_PROGRAM", self.variable)
    }

    fn given(&self) -> Option<PathBuf> {
        std::env::var_os(self.program_variable()).map(PathBuf::from).filter(|path| path.exists())
    }
}
