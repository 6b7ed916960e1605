//! `cargo xtask bench http`: the cost of an idempotency layer for an HTTP server, compared with the same server without
//! one.

mod compare;
mod order;
mod serve;
mod server;
mod side;
mod tables;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

use crate::side::ServerSide;

#[derive(Parser)]
#[command(about = "Compares servers with and without an idempotency layer, in turns")]
struct HttpCli {
    #[command(subcommand)]
    role: Option<HttpRole>,
    #[command(flatten)]
    options: HttpBenchOptions,
}

/// The other role of this program.
#[derive(Subcommand)]
enum HttpRole {
    /// Serve one side until standard input ends. The benchmark starts itself again with this.
    #[command(hide = true)]
    Serve { side: ServerSide },
}

/// The options of the benchmark.
#[derive(Args)]
struct HttpBenchOptions {
    /// Connections to each server; each has one request in flight.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Runs of each side and workload, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Milliseconds of the same work before each run, not measured.
    #[arg(long, default_value_t = 300)]
    warm_up: u64,
    /// Keys that a replay run repeats.
    #[arg(long, default_value_t = 8192)]
    replayed: u64,
    /// Sides to measure beside the bare server; all if not given.
    #[arg(long = "side", value_name = "SIDE")]
    sides: Vec<ServerSide>,
}

impl HttpBenchOptions {
    fn check(&self) -> Result<()> {
        ensure!((1..=1024).contains(&self.connections), "connections must be 1 to 1024");
        ensure!(self.repeats > 0 && self.millis > 0, "a run must take some time");
        // A key must not be in flight twice, so each connection repeats keys of its own.
        ensure!(self.replayed >= self.connections as u64, "replayed must be a key per connection");
        ensure!(self.replayed <= 1_000_000, "replayed must be at most 1000000");
        Ok(())
    }

    /// The sides to measure. The bare server comes first: the others are compared with it.
    fn sides(&self) -> Vec<ServerSide> {
        let wanted = |side: &ServerSide| match side {
            ServerSide::Bare => true,
            side => self.sides.is_empty() || self.sides.contains(side),
        };
        ServerSide::ALL.into_iter().filter(wanted).collect()
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn warm_up(&self) -> Duration {
        Duration::from_millis(self.warm_up)
    }
}

fn main() -> Result<()> {
    let cli = HttpCli::parse();
    if let Some(HttpRole::Serve { side }) = cli.role {
        return serve::run(side);
    }
    cli.options.check()?;
    // One thread: the servers need the rest of the machine.
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // A signal drops the comparison, and with it the servers.
        tokio::select! {
            done = compare::run(&cli.options) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}
