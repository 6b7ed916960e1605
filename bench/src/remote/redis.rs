//! The Redis store compared with redis-benchmark, which sends the same command with 16 in flight on each of 64
//! connections.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use semel_bench::report::{line, spread};
use semel_core::codec::HEAD_BYTES;
use semel_store_redis::{RedisStore, RedisStoreBuilder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    callers::{RemoteLoad, Shape},
    pipeliner, waking,
};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct RedisBenchOptions {
    /// The server; everything on it is deleted.
    #[arg(long)]
    url: String,
    /// Its port, for redis-benchmark.
    #[arg(long)]
    port: u16,
    /// The program redis-benchmark.
    #[arg(long)]
    benchmark: PathBuf,
    /// Runs of each side, taken in turns. Each run of the store is compared with the two runs around it.
    #[arg(long, default_value_t = 9)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 500)]
    millis: u64,
    /// Only run this many callers on the store, for a profile.
    #[arg(long, hide = true)]
    only: Option<usize>,
    /// With `--callers`: complete the claimed keys too.
    #[arg(long, hide = true)]
    cycles: bool,
    /// Connections. Each has one batch in flight.
    #[arg(long, default_value_t = RedisStoreBuilder::CONNECTIONS)]
    connections: usize,
    /// The largest number of calls in a batch.
    #[arg(long, default_value_t = RedisStoreBuilder::BATCH)]
    batch: usize,
}

/// Name, callers, sender, and the goal as a number and as text.
type RedisRow = (&'static str, usize, CommandSender, Option<(f64, &'static str)>);

/// What sends the commands.
#[derive(Clone, Copy)]
enum CommandSender {
    Store(Shape),
    /// A bare pipeliner without a store.
    Bare,
}

const ROWS: [RedisRow; 8] = [
    ("claims, 64 callers", 64, CommandSender::Store(Shape::Claims), Some((75.0, "≥ 75 %"))),
    ("claims, 512 callers", 512, CommandSender::Store(Shape::Claims), Some((85.0, "≥ 85 %"))),
    ("cycles, 64 callers", 64, CommandSender::Store(Shape::Cycles), Some((55.0, "≥ 55 %"))),
    ("cycles, 512 callers", 512, CommandSender::Store(Shape::Cycles), Some((55.0, "≥ 55 %"))),
    ("replays, 64 callers", 64, CommandSender::Store(Shape::Replays), None),
    ("replays, 512 callers", 512, CommandSender::Store(Shape::Replays), None),
    ("bare pipeliner, 64 callers", 64, CommandSender::Bare, None),
    ("bare pipeliner, 512 callers", 512, CommandSender::Bare, None),
];

pub(crate) async fn run(options: &RedisBenchOptions) -> Result<()> {
    let store = options.store().await?;
    if let Some(callers) = options.only {
        let shape = if options.cycles { Shape::Cycles } else { Shape::Claims };
        let rate = options.rate(&store, callers, CommandSender::Store(shape)).await?;
        println!("{rate:.0} calls/s");
        return Ok(());
    }
    let mut limits = vec![options.redis_benchmark(100_000.0).await?];
    for (what, callers, way, goal) in ROWS {
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..options.repeats {
            let before = limits[limits.len() - 1];
            let rate = options.rate(&store, callers, way).await?;
            let after = options.redis_benchmark(before).await?;
            limits.push(after);
            rates.push(rate);
            ratios.push(200.0 * rate / (before + after));
        }
        let ((rate, ..), (ratio, low, high)) = (spread(&mut rates), spread(&mut ratios));
        let text = format!("{rate:.0}/s, {ratio:.0} % ({low:.0}–{high:.0})");
        line(what, &text, goal.map_or("", |goal| goal.1), goal.map(|goal| ratio >= goal.0));
    }
    let (middle, low, high) = spread(&mut limits);
    line("redis-benchmark -P 16 -c 64", &format!("{middle:.0}/s ({low:.0}–{high:.0})"), "", None);
    let other = options.store().await?;
    waking::run(store, other).await
}

impl RedisBenchOptions {
    async fn store(&self) -> Result<RedisStore> {
        let builder = RedisStore::builder(&self.url);
        Ok(builder.connections(self.connections).batch(self.batch).connect().await?)
    }

    /// Calls per second, on an empty server.
    async fn rate(&self, store: &RedisStore, callers: usize, way: CommandSender) -> Result<f64> {
        self.empty().await?;
        let time = Duration::from_millis(self.millis);
        match way {
            CommandSender::Store(shape) => RemoteLoad { callers, time, shape }.run(store).await,
            CommandSender::Bare => pipeliner::run(self.port, callers, time).await,
        }
    }

    /// Empties the server: a server with more keys is slower, and all runs have to begin alike.
    async fn empty(&self) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(b"FLUSHALL SYNC\r\n").await?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).await?;
        ensure!(
            reply == *b"+OK\r\n",
            "FLUSHALL was answered {:?}",
            String::from_utf8_lossy(&reply)
        );
        Ok(())
    }

    /// The rate of redis-benchmark with the claim as a plain command, and a key and a value as long as those of the
    /// store. Takes about the time of a run if `rate` is close.
    async fn redis_benchmark(&self, rate: f64) -> Result<f64> {
        self.empty().await?;
        // The number takes up twelve bytes.
        let (key, value) =
            (format!("semel:k:{}__rand_int__", "b".repeat(20)), "c".repeat(HEAD_BYTES + 1));
        let requests = rate * Duration::from_millis(self.millis).as_secs_f64();
        let output = Command::new(&self.benchmark)
            .args(["-p", &self.port.to_string(), "-q", "-c", "64", "-P", "16"])
            .args(["-n", &format!("{requests:.0}"), "-r", "1000000000"])
            .args(["SET", &key, &value, "NX", "GET", "PX", "86430000"])
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
