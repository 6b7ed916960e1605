//! Starts one server and waits until it answers.

use std::os::unix::process::CommandExt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::command;
use crate::process::Process;
use crate::record::{Owner, Record};
use crate::server::Server;
use crate::site::Site;

const POLL: Duration = Duration::from_millis(50);

/// Whose signals from the terminal the server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// None: who started it stops it in order.
    Own,
    /// The caller's: an interrupted test takes its servers along.
    Callers,
}

/// Why a server did not come up.
pub(crate) enum Failure {
    Exited(anyhow::Error),
    Other(anyhow::Error),
}

/// One try; a failed one leaves no process.
pub(crate) fn attempt(
    server: &Server,
    site: &Site,
    group: Group,
) -> Result<(Child, Record), Failure> {
    let result =
        spawn(server, site, group).map_err(Failure::Other).and_then(|(mut child, record)| {
            await_health(server, site, &mut child).inspect_err(|_| {
                let _ = record.end();
                let _ = child.wait();
            })?;
            Ok((child, record))
        });
    result.map_err(|failure| failure.with_log(server, site))
}

/// The record is on disk before the first request, so that an interrupt finds the process.
fn spawn(server: &Server, site: &Site, group: Group) -> Result<(Child, Record)> {
    let mut serve = site.logged((server.launch)(server, site)?)?;
    serve.args(&server.args);
    command::permit()?;
    if group == Group::Own {
        serve.process_group(0);
    }
    let mut child = serve.spawn()?;
    let record = record(server, site, &child).and_then(|record| record.save().map(|()| record));
    match record {
        Ok(record) => Ok((child, record)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn record(server: &Server, site: &Site, child: &Child) -> Result<Record> {
    Ok(Record {
        name: server.name.to_owned(),
        process: Process::of(child.id())?,
        port: site.port,
        url: (server.url)(site.port),
        variable: server.url_variable(),
        owner: Owner::Chore(Process::own()?),
        stop: server.stop,
        folder: site.folder.clone(),
        data: site.data.clone(),
    })
}

fn await_health(server: &Server, site: &Site, child: &mut Child) -> Result<(), Failure> {
    let deadline = Instant::now() + server.patience;
    loop {
        command::permit().map_err(Failure::Other)?;
        let health = (server.health)(site);
        // Looked at after the request: a stranger on our port may have answered it.
        if let Some(status) = child.try_wait().map_err(|error| Failure::Other(error.into()))? {
            return Err(Failure::Exited(anyhow!("it ended with {status}")));
        }
        match health {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                let seconds = server.patience.as_secs_f32();
                let error = error.context(format!("no healthy answer within {seconds} s"));
                return Err(Failure::Other(error));
            }
            Err(_) => sleep(POLL),
        }
    }
}

impl Failure {
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Exited(error) | Self::Other(error) => error,
        }
    }

    fn with_log(self, server: &Server, site: &Site) -> Self {
        let describe = |error: anyhow::Error| {
            anyhow!("{} did not come up: {error:#}; its log ends:\n{}", server.name, site.tail())
        };
        match self {
            Self::Exited(error) => Self::Exited(describe(error)),
            Self::Other(error) => Self::Other(describe(error)),
        }
    }
}
