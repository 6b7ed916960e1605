//! Starts one server and waits until it answers.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::command;
use crate::servers::process::Process;
use crate::servers::record::{Owner, Record};
use crate::servers::server::Server;
use crate::servers::site::Site;

const POLL: Duration = Duration::from_millis(50);

/// Somebody may take the free port before the server does. It then exits, and gets another port.
const ATTEMPTS: u32 = 3;

/// Why a server did not come up.
enum Failure {
    Exited(anyhow::Error),
    Other(anyhow::Error),
}

/// Installs the server if need be, starts it and returns once it has answered a request.
pub(crate) fn start(server: &Server, home: &Path, tools: &Path) -> Result<Record> {
    let program = server.install.ensure(tools)?;
    let mut attempts = 1;
    loop {
        let site = Site::open(server, program.clone(), home)?;
        match attempt(server, &site) {
            Ok(record) => return Ok(record),
            Err(Failure::Exited(_)) if attempts < ATTEMPTS => attempts += 1,
            Err(Failure::Exited(error) | Failure::Other(error)) => return Err(error),
        }
    }
}

/// One try; a failed one leaves neither a process nor a folder.
fn attempt(server: &Server, site: &Site) -> Result<Record, Failure> {
    let result = spawn(server, site).map_err(Failure::Other).and_then(|(mut child, record)| {
        await_health(server, site, &mut child).inspect_err(|_| {
            let _ = record.end();
            let _ = child.wait();
        })?;
        Ok(record)
    });
    result.map_err(|failure| {
        let failure = failure.with_log(server, site);
        let _ = site.remove();
        failure
    })
}

/// The record is on disk before the first request, so that an interrupt finds the process.
fn spawn(server: &Server, site: &Site) -> Result<(Child, Record)> {
    let mut serve = site.logged((server.launch)(site)?)?;
    command::permit()?;
    // A group of its own: Ctrl-C is for xtask, which stops its servers in order.
    let mut child = serve.process_group(0).spawn()?;
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
        variable: server.variable.to_owned(),
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
