//! Starts one server and waits until it answers.

use std::os::unix::process::CommandExt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::command;
use crate::process::ServerProcess;
use crate::record::{ServerOwner, ServerRecord};
use crate::server::TestServer;
use crate::site::ServerSite;

const POLL: Duration = Duration::from_millis(50);

/// The process group of a server, which decides which terminal signals it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalGroup {
    /// A group of its own: it gets no terminal signals, and its starter stops it.
    Own,
    /// The group of the caller: an interrupted test interrupts its servers too.
    Callers,
}

/// Why a server did not start.
pub(crate) enum StartFailure {
    Exited(anyhow::Error),
    Other(anyhow::Error),
}

/// Tries once to start a server. A failed try leaves no process.
pub(crate) fn attempt(
    server: &TestServer,
    site: &ServerSite,
    group: SignalGroup,
) -> Result<(Child, ServerRecord), StartFailure> {
    let result =
        spawn(server, site, group).map_err(StartFailure::Other).and_then(|(mut child, record)| {
            await_health(server, site, &mut child).inspect_err(|_| {
                let _ = record.end();
                let _ = child.wait();
            })?;
            Ok((child, record))
        });
    result.map_err(|failure| failure.with_log(server, site))
}

/// Starts the process and writes its record before the first request, so that an interrupt finds the process.
fn spawn(
    server: &TestServer,
    site: &ServerSite,
    group: SignalGroup,
) -> Result<(Child, ServerRecord)> {
    let mut serve = site.logged((server.launch)(server, site)?)?;
    serve.args(&server.args);
    command::permit()?;
    if group == SignalGroup::Own {
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

fn record(server: &TestServer, site: &ServerSite, child: &Child) -> Result<ServerRecord> {
    Ok(ServerRecord {
        name: server.name.to_owned(),
        process: ServerProcess::of(child.id())?,
        port: site.port,
        url: (server.url)(site.port),
        variable: server.url_variable(),
        owner: ServerOwner::Task(ServerProcess::own()?),
        stop: server.stop,
        folder: site.folder.clone(),
        data: site.data.clone(),
    })
}

fn await_health(
    server: &TestServer,
    site: &ServerSite,
    child: &mut Child,
) -> Result<(), StartFailure> {
    let deadline = Instant::now() + server.patience;
    loop {
        command::permit().map_err(StartFailure::Other)?;
        let health = (server.health)(site);
        // Checked after the request: another process on this port may have answered it.
        if let Some(status) = child.try_wait().map_err(|error| StartFailure::Other(error.into()))? {
            return Err(StartFailure::Exited(anyhow!("it ended with {status}")));
        }
        match health {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                let seconds = server.patience.as_secs_f32();
                let error = error.context(format!("no healthy answer within {seconds} s"));
                return Err(StartFailure::Other(error));
            }
            Err(_) => sleep(POLL),
        }
    }
}

impl StartFailure {
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Exited(error) | Self::Other(error) => error,
        }
    }

    fn with_log(self, server: &TestServer, site: &ServerSite) -> Self {
        let describe = |error: anyhow::Error| {
            anyhow!("{} did not come up: {error:#}; its log ends:\n{}", server.name, site.tail())
        };
        match self {
            Self::Exited(error) => Self::Exited(describe(error)),
            Self::Other(error) => Self::Other(describe(error)),
        }
    }
}
