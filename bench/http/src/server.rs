//! A side that runs, and the connections to it.

use std::{ops::Sub, time::Duration};

use anyhow::{Context, Result};
use semel_bench::http::{Connection, Process};

use crate::side::Side;

/// A running server and the connections to it.
pub(crate) struct Server {
    pub(crate) side: Side,
    pub(crate) connections: Vec<Connection>,
    meter: Connection,
    process: Process,
}

/// What a server has done so far, or between two looks.
#[derive(Clone, Copy)]
pub(crate) struct Meter {
    /// Runs of the handler.
    pub(crate) runs: u64,
    /// Processor time of all its threads.
    pub(crate) cpu: Duration,
}

impl Server {
    pub(crate) async fn start(side: Side, connections: usize) -> Result<Self> {
        let name = side.name();
        let (process, port) = Process::start_self(&["serve", name])
            .with_context(|| format!("cannot start {name}"))?;
        let mut all = Vec::with_capacity(connections);
        for _ in 0..connections {
            all.push(Connection::open(port).await?);
        }
        Ok(Self { side, connections: all, meter: Connection::open(port).await?, process })
    }

    pub(crate) async fn meter(&mut self) -> Result<Meter> {
        let text = self.meter.get("/meter").await?;
        let (runs, cpu) = text.split_once(' ').context("the meter shows two numbers")?;
        Ok(Meter { runs: runs.parse()?, cpu: Duration::from_nanos(cpu.parse()?) })
    }

    /// Megabytes it holds now.
    pub(crate) fn megabytes(&self) -> Result<u64> {
        self.process.megabytes()
    }
}

impl Sub for Meter {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, cpu: self.cpu - earlier.cpu }
    }
}
