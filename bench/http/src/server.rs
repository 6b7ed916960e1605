//! A running side and the connections to it.

use std::{ops::Sub, time::Duration};

use anyhow::{Context, Result};
use semel_bench::http::{BenchProcess, LoadConnection};

use crate::side::ServerSide;

/// A running server and the connections to it.
pub(crate) struct BenchServer {
    pub(crate) side: ServerSide,
    pub(crate) connections: Vec<LoadConnection>,
    meter: LoadConnection,
    process: BenchProcess,
}

/// Handler runs and processor time of a server so far.
#[derive(Clone, Copy)]
pub(crate) struct ServerMeter {
    /// Runs of the handler.
    pub(crate) runs: u64,
    /// Processor time of all its threads.
    pub(crate) cpu: Duration,
}

impl BenchServer {
    pub(crate) async fn start(side: ServerSide, connections: usize) -> Result<Self> {
        let name = side.name();
        let (process, port) = BenchProcess::start_self(&["serve", name])
            .with_context(|| format!("cannot start {name}"))?;
        let mut all = Vec::with_capacity(connections);
        for _ in 0..connections {
            all.push(LoadConnection::open(port).await?);
        }
        Ok(Self { side, connections: all, meter: LoadConnection::open(port).await?, process })
    }

    pub(crate) async fn meter(&mut self) -> Result<ServerMeter> {
        let text = self.meter.get("/meter").await?;
        let (runs, cpu) = text.split_once(' ').context("the meter shows two numbers")?;
        Ok(ServerMeter { runs: runs.parse()?, cpu: Duration::from_nanos(cpu.parse()?) })
    }

    /// Its resident memory in megabytes.
    pub(crate) fn megabytes(&self) -> Result<u64> {
        self.process.megabytes()
    }
}

impl Sub for ServerMeter {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, cpu: self.cpu - earlier.cpu }
    }
}
