//! Servers that live as long as the chore that needs them.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use semel_servers::{Group, Owner, Process, Record, Running, Server, command};

use crate::workspace::Workspace;

/// The exit code a shell gives to a command ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// How long an interrupted chore may take to clean up by itself.
const GRACE: Duration = Duration::from_secs(30);

/// Running servers. Dropping it stops them.
#[derive(Debug, Default)]
pub(crate) struct TestServers {
    running: Vec<Running>,
    variables: Vec<(String, String)>,
}

impl TestServers {
    /// Starts `servers` in order. When one fails, those before it are stopped again.
    pub(crate) fn start(workspace: &Workspace, servers: &[&Server]) -> Result<Self> {
        let mut started = Self::default();
        for server in servers {
            let program = server.install(&workspace.tools())?;
            let running = Running::launch(server, &program, &workspace.servers(), Group::Own)?;
            println!("{} is up at {}", server.name, running.url());
            // Some tests start servers of their own, from the same program.
            let program = program.to_string_lossy().into_owned();
            started.variables.push((server.program_variable(), program));
            started.variables.push((server.url_variable(), running.url().to_owned()));
            started.running.push(running);
        }
        Ok(started)
    }

    /// What tests read to find the servers and their programs.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Leaves the servers running, for `servers down` to stop.
    pub(crate) fn hand_over(self) -> Result<()> {
        self.running.into_iter().try_for_each(Running::hand_over)
    }
}

/// On Ctrl-C, SIGTERM or SIGHUP: ends the running command, which makes the chore fail and stop its
/// servers on its usual way out. A chore that does not get there in time is ended here.
///
/// Only SIGKILL gets past this; the servers it leaves are stopped by the next `servers down`.
pub(crate) fn stop_on_interrupt(home: PathBuf) -> Result<()> {
    let own = Owner::Chore(Process::own()?);
    ctrlc::set_handler(move || {
        command::interrupt();
        sleep(GRACE);
        for record in Record::all(&home).iter().filter(|record| record.owner == own) {
            if let Err(error) = record.stop() {
                eprintln!("warning: {error:#}");
            }
        }
        std::process::exit(INTERRUPTED);
    })
    .context("cannot listen for signals")
}
