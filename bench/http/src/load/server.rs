//! A server in a child process, which ends with its guard.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    ops::Sub,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

use super::Connection;
use crate::side::Side;

/// A running server and the connections to it.
pub(crate) struct Server {
    pub(crate) side: Side,
    pub(crate) connections: Vec<Connection>,
    meter: Connection,
    child: Guard,
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
        let (child, port) = spawn(name).with_context(|| format!("cannot start {name}"))?;
        let mut all = Vec::with_capacity(connections);
        for _ in 0..connections {
            all.push(Connection::open(port).await?);
        }
        Ok(Self { side, connections: all, meter: Connection::open(port).await?, child })
    }

    pub(crate) async fn meter(&mut self) -> Result<Meter> {
        let text = self.meter.get("/meter").await?;
        let (runs, cpu) = text.split_once(' ').context("the meter shows two numbers")?;
        Ok(Meter { runs: runs.parse()?, cpu: Duration::from_nanos(cpu.parse()?) })
    }

    /// Megabytes it holds now.
    pub(crate) fn megabytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.0.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        Ok(kilobytes.context("no VmRSS")?.parse::<u64>()? / 1024)
    }
}

impl Sub for Meter {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, cpu: self.cpu - earlier.cpu }
    }
}

/// Ends the child on every way out.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it has ended already, and then there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program as a server, and reads the port it chose.
fn spawn(side: &str) -> Result<(Guard, u16)> {
    let mut command = Command::new(env::current_exe()?);
    let command = command.args(["serve", side]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Guard(command.spawn()?);
    let output = child.0.stdout.take().context("its output is piped")?;
    let mut port = String::new();
    BufReader::new(output).read_line(&mut port)?;
    Ok((child, port.trim().parse().context("it named no port")?))
}
