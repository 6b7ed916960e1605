//! A side that runs: its process, its files and its port.

mod nginx;
mod semel;

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use semel_bench::http::{Connection, Process, Stop};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{options::Options, order::ORDER, side::Side, upstream::Upstream};

/// How long a proxy may take until it passes a request on.
const PATIENCE: Duration = Duration::from_secs(10);

/// A way to the upstream that is open.
pub(crate) struct Server {
    pub(crate) side: Side,
    port: u16,
    proxy: Option<Proxy>,
}

/// The process ends before its folder does.
struct Proxy {
    process: Process,
    folder: TempDir,
}

/// What a proxy is started with.
struct Place<'a> {
    folder: &'a Path,
    port: u16,
    upstream: u16,
}

impl Server {
    pub(crate) async fn start(side: Side, options: &Options, upstream: &Upstream) -> Result<Self> {
        let command: fn(&Place<'_>, &Options) -> Result<Command> = match side {
            Side::Direct => return Ok(Self { side, port: upstream.port, proxy: None }),
            Side::Nginx => nginx::command,
            Side::Memory => |place, options| Ok(semel::command(place, options, "memory:")),
            Side::Embedded => |place, options| Ok(semel::command(place, options, "file:store")),
        };
        // Programs are started in their folders.
        let home = fs::create_dir_all(&options.folder).and_then(|()| options.folder.canonicalize());
        let folder = tempfile::tempdir_in(home.context("no folder for the files of servers")?)?;
        let port = free_port()?;
        let place = Place { folder: folder.path(), port, upstream: upstream.port };
        let mut command = command(&place, options)?;
        let log = File::create(folder.path().join("log"))?;
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?);
        let stop = if side == Side::Nginx { Stop::Terminate } else { Stop::Kill };
        let process = Process::start(command.stderr(log), stop)?;
        let mut proxy = Proxy { process, folder };
        proxy.answers_on(port).await.with_context(|| format!("{} does not run", side.name()))?;
        Ok(Self { side, port, proxy: Some(proxy) })
    }

    /// New connections: one that was idle while others were measured may be closed.
    pub(crate) async fn connect(&self, count: usize) -> Result<Vec<Connection>> {
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(Connection::open(self.port).await?);
        }
        Ok(all)
    }

    /// Processor time of the proxy so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.proxy.as_ref().map_or(Ok(Duration::ZERO), |proxy| proxy.process.cpu())
    }
}

impl Proxy {
    /// Waits until it passes a request on.
    async fn answers_on(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = ask(port).await {
            if !self.process.is_alive()? || Instant::now() >= deadline {
                let log = fs::read_to_string(self.folder.path().join("log"))?;
                bail!("{error:#}; its log:\n{log}");
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

async fn ask(port: u16) -> Result<()> {
    Connection::open(port).await?.get(ORDER).await?;
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
