//! The options of the benchmark.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use crate::side::ProxySide;

#[derive(Args)]
pub(crate) struct GatewayBenchOptions {
    /// Short runs: they show that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Seconds of each run [default: 2, quick: 0.5].
    #[arg(long)]
    seconds: Option<f64>,
    /// Runs of each side and workload, taken in turns [default: 5, quick: 1].
    #[arg(long)]
    repeats: Option<usize>,
    /// Connections to a side; each has one request in flight.
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Keys that a replay run repeats.
    #[arg(long, default_value_t = 8192)]
    pub(crate) replayed: u64,
    /// Bytes of a POST's body.
    #[arg(long, default_value_t = 128)]
    pub(crate) body: usize,
    /// Bytes of an answer's body.
    #[arg(long, default_value_t = 200)]
    pub(crate) answer: usize,
    /// Proxies to measure beside the upstream itself; all if not given.
    #[arg(long = "side", value_name = "SIDE")]
    sides: Vec<ProxySide>,
    /// The program `semel`; `cargo xtask` builds and names it.
    #[arg(long, default_value = "semel")]
    pub(crate) semel: PathBuf,
    /// The program `nginx`; `cargo xtask` installs and names it.
    #[arg(long, default_value = "nginx")]
    pub(crate) nginx: PathBuf,
    /// The folder for the files of servers. The speed of its disk matters.
    #[arg(long, default_value = "target/bench-gateway")]
    pub(crate) folder: PathBuf,
}

impl GatewayBenchOptions {
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((1..=1024).contains(&self.connections), "connections must be 1 to 1024");
        let seconds = self.seconds.unwrap_or(1.0);
        ensure!((0.1..=60.0).contains(&seconds), "seconds must be 0.1 to 60");
        ensure!(self.repeats() > 0, "repeats must be at least 1");
        // A key must not be in flight twice, so each connection repeats keys of its own.
        ensure!(
            self.replayed >= self.connections as u64,
            "replayed must be at least the number of connections"
        );
        ensure!(self.replayed <= 100_000, "replayed must be at most 100000");
        ensure!((32..=65_536).contains(&self.body), "body must be 32 to 65536");
        ensure!((32..=4096).contains(&self.answer), "answer must be 32 to 4096");
        Ok(())
    }

    /// The sides to measure. The upstream comes first: the others are compared with it.
    pub(crate) fn sides(&self) -> Vec<ProxySide> {
        let wanted = |side: &ProxySide| match side {
            ProxySide::Direct => true,
            side => self.sides.is_empty() || self.sides.contains(side),
        };
        ProxySide::ALL.into_iter().filter(wanted).collect()
    }

    pub(crate) fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.quick { 1 } else { 5 })
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 0.5 } else { 2.0 }))
    }

    /// The same work before each run, not measured.
    pub(crate) fn warm_up(&self) -> Duration {
        self.time().min(Duration::from_millis(300))
    }

    pub(crate) fn announce(&self) {
        println!(
            "{} connections, bodies of {} and answers of {} bytes, {} x {} s, all sides in turns\n",
            self.connections,
            self.body,
            self.answer,
            self.repeats(),
            self.time().as_secs_f64(),
        );
    }
}
