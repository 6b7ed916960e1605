//! Servers that live as long as the chore that needs them.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command;
use crate::servers::process::Process;
use crate::servers::record::{Owner, Record};
use crate::servers::server::Server;
use crate::servers::start::start;
use crate::workspace::Workspace;

/// The exit code a shell gives to a command ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// How long an interrupted chore may take to clean up by itself.
const GRACE: Duration = Duration::from_secs(30);

/// Running servers. Dropping it stops them.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    records: Vec<Record>,
}

impl Fleet {
    /// Starts `servers` in order. When one fails, those before it are stopped again.
    pub(crate) fn start(workspace: &Workspace, servers: &[&Server]) -> Result<Self> {
        let mut fleet = Self::default();
        for server in servers {
            let record = start(server, &workspace.servers(), &workspace.tools())?;
            println!("{} is up at {}", record.name, record.url);
            fleet.records.push(record);
        }
        Ok(fleet)
    }

    /// What tests read to find the servers.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.records.iter().map(|record| (record.variable.as_str(), record.url.as_str()))
    }

    /// Leaves the servers running, for `servers down` to stop.
    pub(crate) fn hand_over(mut self) -> Result<()> {
        for record in &mut self.records {
            record.owner = Owner::Checkout;
            record.save()?;
        }
        self.records.clear();
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for record in &self.records {
            if let Err(error) = record.stop() {
                eprintln!("warning: {error:#}");
            }
        }
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
