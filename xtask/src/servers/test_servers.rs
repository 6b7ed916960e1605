//! Servers that run as long as the xtask command that needs them.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use semel_servers::{
    Running, ServerOwner, ServerProcess, ServerRecord, SignalGroup, TestServer, command,
};

use crate::workspace::Workspace;

/// The exit code a shell gives to a command ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// How long an interrupted command may take to stop its servers by itself.
const GRACE: Duration = Duration::from_secs(30);

/// Running servers. Dropping it stops them.
#[derive(Debug, Default)]
pub(crate) struct TestServers {
    running: Vec<Running>,
    variables: Vec<(String, String)>,
}

impl TestServers {
    /// Starts `servers` in order. When one fails, those before it are stopped again.
    pub(crate) fn start(workspace: &Workspace, servers: &[&TestServer]) -> Result<Self> {
        let mut started = Self::default();
        for server in servers {
            let program = server.install(&workspace.tools())?;
            let running =
                Running::launch(server, &program, &workspace.servers(), SignalGroup::Own)?;
            // Not on stdout: there `servers up` prints commands for a shell.
            eprintln!("{} is up at {}", server.name, running.url());
            // Some tests start further servers from the same program.
            let program = program.to_string_lossy().into_owned();
            started.variables.push((server.program_variable(), program));
            started.variables.push((server.url_variable(), running.url().to_owned()));
            started.running.push(running);
        }
        Ok(started)
    }

    /// The environment variables from which tests learn the servers' addresses and programs.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Leaves the servers running until `servers down`.
    pub(crate) fn hand_over(self) -> Result<()> {
        self.running.into_iter().try_for_each(Running::hand_over)
    }
}

/// On Ctrl-C, SIGTERM or SIGHUP: ends the child processes, which makes the xtask command fail and stop its
/// servers as usual. After [`GRACE`] this handler stops the servers itself, and exits.
///
/// SIGKILL cannot be handled; the next `servers down` stops the servers that it leaves running.
pub(crate) fn stop_on_interrupt(home: PathBuf) -> Result<()> {
    let own = ServerOwner::Task(ServerProcess::own()?);
    ctrlc::set_handler(move || {
        command::interrupt();
        sleep(GRACE);
        for record in ServerRecord::all(&home).iter().filter(|record| record.owner == own) {
            if let Err(error) = record.stop() {
                eprintln!("warning: {error:#}");
            }
        }
        std::process::exit(INTERRUPTED);
    })
    .context("cannot listen for signals")
}
