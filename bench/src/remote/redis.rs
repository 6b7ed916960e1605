//! The Redis store beside redis-benchmark, which sends the same command with 16 in flight on each of 64
//! connections.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use semel_bench::report::{line, spread};
use semel_core::codec::HEAD_BYTES;
use semel_store_redis::{RedisStore, RedisStoreBuilder};

use crate::{
    callers::{Load, Shape},
    waking,
};

/// How much to measure, and where.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The server; everything on it is deleted.
    #[arg(long)]
    url: String,
    /// Its port, for redis-benchmark.
    #[arg(long)]
    port: u16,
    /// The program redis-benchmark.
    #[arg(long)]
    benchmark: PathBuf,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Only let so many callers loose, for a profile.
    #[arg(long, hide = true)]
    only: Option<usize>,
    /// And let them complete what they claim.
    #[arg(long, hide = true)]
    cycles: bool,
    /// Connections, each with a batch in flight.
    #[arg(long, default_value_t = RedisStoreBuilder::CONNECTIONS)]
    connections: usize,
    /// Calls in a batch at most.
    #[arg(long, default_value_t = RedisStoreBuilder::BATCH)]
    batch: usize,
}

/// What, by how many, doing what, and the goal as a number and as text.
type Row = (&'static str, usize, Shape, Option<(f64, &'static str)>);

const ROWS: [Row; 6] = [
    ("claims, 64 callers", 64, Shape::Claims, Some((75.0, "≥ 75 %"))),
    ("claims, 512 callers", 512, Shape::Claims, Some((85.0, "≥ 85 %"))),
    ("cycles, 64 callers", 64, Shape::Cycles, Some((55.0, "≥ 55 %"))),
    ("cycles, 512 callers", 512, Shape::Cycles, Some((55.0, "≥ 55 %"))),
    ("replays, 64 callers", 64, Shape::Replays, None),
    ("replays, 512 callers", 512, Shape::Replays, None),
];

pub(crate) async fn run(options: &Options) -> Result<()> {
    let store = options.store().await?;
    let time = Duration::from_millis(options.millis);
    if let Some(callers) = options.only {
        let shape = if options.cycles { Shape::Cycles } else { Shape::Claims };
        let rate = Load { callers, time, shape }.run(&store).await?;
        println!("{rate:.0} calls/s");
        return Ok(());
    }
    let mut ours: [Vec<f64>; ROWS.len()] = Default::default();
    let (mut bare, mut ratios) = (Vec::new(), ours.clone());
    for _ in 0..options.repeats {
        let limit = options.redis_benchmark()?;
        bare.push(limit);
        for (row, (_, callers, shape, _)) in ROWS.into_iter().enumerate() {
            let rate = Load { callers, time, shape }.run(&store).await?;
            ours[row].push(rate);
            ratios[row].push(100.0 * rate / limit);
        }
    }
    let (middle, low, high) = spread(&mut bare);
    line("redis-benchmark -P 16 -c 64", &format!("{middle:.0}/s ({low:.0}–{high:.0})"), "", None);
    for (row, (what, _, _, goal)) in ROWS.into_iter().enumerate() {
        let ((rate, ..), (ratio, low, high)) = (spread(&mut ours[row]), spread(&mut ratios[row]));
        let text = format!("{rate:.0}/s, {ratio:.0} % ({low:.0}–{high:.0})");
        line(what, &text, goal.map_or("", |goal| goal.1), goal.map(|goal| ratio >= goal.0));
    }
    let other = options.store().await?;
    waking::run(store, other).await
}

impl Options {
    async fn store(&self) -> Result<RedisStore> {
        let builder = RedisStore::builder(&self.url);
        Ok(builder.connections(self.connections).batch(self.batch).connect().await?)
    }

    /// The claim as a plain command, with a value as long as ours.
    fn redis_benchmark(&self) -> Result<f64> {
        let value = "c".repeat(HEAD_BYTES + 1);
        let output = Command::new(&self.benchmark)
            .args(["-p", &self.port.to_string(), "-q", "-c", "64", "-P", "16"])
            .args(["-n", &(100 * self.millis).to_string(), "-r", "1000000000"])
            .args(["SET", "semel:bench:__rand_int__", &value, "NX", "GET", "PX", "86430000"])
            .output()
            .context("redis-benchmark does not start")?;
        ensure!(output.status.success(), "redis-benchmark failed");
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.rsplit(": ").find_map(|part| {
            part.split_once(" requests per second").and_then(|(rate, _)| rate.parse().ok())
        });
        rate.with_context(|| format!("redis-benchmark printed {text}"))
    }
}
