//! A running side: its process, its files and its port.

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
use semel_bench::http::{BenchProcess, LoadConnection, StopMode};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{options::GatewayBenchOptions, order::ORDER, side::ProxySide, upstream::BenchUpstream};

/// How long a proxy may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running side.
pub(crate) struct ProxyServer {
    pub(crate) side: ProxySide,
    port: u16,
    proxy: Option<ProxyProcess>,
}

/// The process of a proxy. It ends before its folder is removed.
struct ProxyProcess {
    process: BenchProcess,
    folder: TempDir,
}

/// The parameters for the start of a proxy.
struct ProxyLaunch<'a> {
    folder: &'a Path,
    port: u16,
    upstream: u16,
}

impl ProxyServer {
    pub(crate) async fn start(
        side: ProxySide,
        options: &GatewayBenchOptions,
        upstream: &BenchUpstream,
    ) -> Result<Self> {
        let command: fn(&ProxyLaunch<'_>, &GatewayBenchOptions) -> Result<Command> = match side {
            ProxySide::Direct => return Ok(Self { side, port: upstream.port, proxy: None }),
            ProxySide::Nginx => nginx::command,
            ProxySide::Memory => |place, options| Ok(semel::command(place, options, "memory:")),
            ProxySide::Embedded => {
                |place, options| Ok(semel::command(place, options, "file:store"))
            }
        };
        // Absolute, because programs are started in their folders.
        let home = fs::create_dir_all(&options.folder).and_then(|()| options.folder.canonicalize());
        let folder = tempfile::tempdir_in(home.context("no folder for the files of servers")?)?;
        let port = free_port()?;
        let place = ProxyLaunch { folder: folder.path(), port, upstream: upstream.port };
        let mut command = command(&place, options)?;
        let log = File::create(folder.path().join("log"))?;
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?);
        let stop = if side == ProxySide::Nginx { StopMode::Terminate } else { StopMode::Kill };
        let process = BenchProcess::start(command.stderr(log), stop)?;
        let mut proxy = ProxyProcess { process, folder };
        proxy.answers_on(port).await.with_context(|| format!("{} does not run", side.name()))?;
        Ok(Self { side, port, proxy: Some(proxy) })
    }

    /// Opens new connections: idle ones may have been closed while other sides were measured.
    pub(crate) async fn connect(&self, count: usize) -> Result<Vec<LoadConnection>> {
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(LoadConnection::open(self.port).await?);
        }
        Ok(all)
    }

    /// The processor time of the proxy so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.proxy.as_ref().map_or(Ok(Duration::ZERO), |proxy| proxy.process.cpu())
    }
}

impl ProxyProcess {
    /// Waits until the proxy passes a request on.
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
    LoadConnection::open(port).await?.get(ORDER).await?;
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
