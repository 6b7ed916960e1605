//! The memory store compared with a plain sharded map, and the engine over it.

mod map;
mod throughput;

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use semel_bench::{
    load::{call, claim_and_complete, keys, now, request, with_capacity},
    report::{latency, line, nanoseconds, spread},
};
use semel_core::{Claim, Engine, LabelPolicy, ManualClock, MemoryStore, Policy, Store};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct MemoryBenchOptions {
    /// Keys per throughput run.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Throughput runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Calls per latency histogram.
    #[arg(long, default_value_t = 200_000)]
    calls: u64,
    /// Only fill one side and print its rate.
    #[arg(long, hide = true)]
    side: Option<throughput::MemorySide>,
}

pub(crate) fn run(options: &MemoryBenchOptions) -> Result<()> {
    if let Some(side) = options.side {
        println!("{}", side.fill(options.keys)?);
        return Ok(());
    }
    println!("{} keys, 300-byte outcomes, map and store in turns\n", options.keys);
    throughput::run(options.keys, options.repeats)?;
    store_replay(options)?;
    purge()?;
    engine(options)
}

fn store_replay(options: &MemoryBenchOptions) -> Result<()> {
    let memory = with_capacity(options.keys);
    (0..options.keys).for_each(|i| claim_and_complete(&memory, i, LabelPolicy::Keep));
    let mut histogram = nanoseconds();
    for _ in 0..options.calls {
        let request = request(rand::random_range(0..options.keys), LabelPolicy::Keep);
        let started = Instant::now();
        let answer = now(memory.claim(&request));
        histogram.record(u64::try_from(started.elapsed().as_nanos())?)?;
        anyhow::ensure!(matches!(answer, Ok(Claim::Replay(_))), "not a replay: {answer:?}");
    }
    line("replay, store alone", &latency(&histogram), "", None);
    Ok(())
}

fn purge() -> Result<()> {
    let (clock, keys) = (ManualClock::new(), 200_000);
    let memory = MemoryStore::builder().clock(clock.clone()).build()?;
    let mut times = Vec::new();
    (0..keys).for_each(|i| claim_and_complete(&memory, i, LabelPolicy::Keep));
    clock.advance(Duration::from_secs(86_400));
    for _ in 0..5 {
        let started = Instant::now();
        let purged = now(memory.purge(10_000))?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
        anyhow::ensure!(purged.deleted == 10_000, "purged {purged:?}");
    }
    let (mid, low, high) = spread(&mut times);
    let text = format!("{mid:.2} ms ({low:.2}–{high:.2}) of 200,000 records");
    line("purge of 10,000 expired", &text, "≤ 5 ms", Some(mid <= 5.0));
    Ok(())
}

/// First runs and replays through the engine.
fn engine(options: &MemoryBenchOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = with_capacity(options.calls);
    let engine = Engine::builder().store(store).policy(Policy::api()).build()?;
    let first = runtime.block_on(calls(&engine, options.calls, false))?;
    let replay = runtime.block_on(calls(&engine, options.calls, true))?;
    let under = |h: &Histogram<u64>, us: u64| Some(h.value_at_quantile(0.99) < us * 1000);
    line("first run, engine", &latency(&first), "p99 < 50 µs", under(&first, 50));
    line("replay, engine", &latency(&replay), "p99 < 20 µs", under(&replay, 20));
    Ok(())
}

async fn calls(engine: &Engine, count: u64, replayed: bool) -> Result<Histogram<u64>> {
    let mut histogram = nanoseconds();
    for key in keys(count) {
        let started = Instant::now();
        let answer = call(engine, key).await?;
        histogram.record(u64::try_from(started.elapsed().as_nanos())?)?;
        anyhow::ensure!(answer.replayed == replayed && answer.stored);
    }
    Ok(histogram)
}
