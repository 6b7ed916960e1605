//! The memory store beside a plain sharded map, and the engine on top of it.

mod map;

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use semel_bench::{
    load::{call, claim_and_complete, keys, now, request, roomy},
    report::{latency, line, nanoseconds, spread},
};
use semel_core::{Claim, Engine, LabelPolicy, ManualClock, MemoryStore, Policy, Store};

use self::map::PlainMap;

/// How much to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Keys per throughput run.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Throughput runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Calls per latency histogram.
    #[arg(long, default_value_t = 200_000)]
    calls: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let threads = std::thread::available_parallelism()?.get() as u64;
    println!("{} keys, {threads} threads, 300-byte outcomes, in turns\n", options.keys);
    throughput(options, threads, LabelPolicy::Redact);
    throughput(options, threads, LabelPolicy::Keep);
    store_replay(options)?;
    purge()?;
    engine(options)
}

/// Claim and complete, map and store in turns; the ratio of each pair, and the middle one of those.
/// The map keeps no labels, so the goal is for a store that keeps none either.
fn throughput(options: &Options, threads: u64, labels: LabelPolicy) {
    let (mut map, mut store, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        let plain = PlainMap::default();
        let limit = rate(options.keys, threads, |i| plain.claim_and_complete(i));
        drop(plain);
        let memory = roomy(options.keys);
        let ours = rate(options.keys, threads, |i| claim_and_complete(&memory, i, labels));
        drop(memory);
        map.push(limit / 1e6);
        store.push(ours / 1e6);
        ratio.push(ours / limit * 100.0);
    }
    let (map, store, ratio) = (spread(&mut map), spread(&mut store), spread(&mut ratio));
    let figure = |(mid, low, high): (f64, f64, f64)| format!("{mid:.2} M ops/s ({low:.2}–{high:.2})");
    line("claim+complete, plain map", &figure(map), "", None);
    let (what, goal, met) = match labels {
        LabelPolicy::Redact => ("memory store", "≥ 75 %", Some(ratio.0 >= 75.0)),
        LabelPolicy::Keep => ("store with labels", "", None),
    };
    line(&format!("claim+complete, {what}"), &figure(store), "", None);
    let text = format!("{:.0} % ({:.0}–{:.0})", ratio.0, ratio.1, ratio.2);
    line("  of the map", &text, goal, met);
}

fn rate(keys: u64, threads: u64, op: impl Fn(u64) + Sync) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let op = &op;
            scope.spawn(move || (thread..keys).step_by(threads as usize).for_each(op));
        }
    });
    2.0 * keys as f64 / started.elapsed().as_secs_f64()
}

fn store_replay(options: &Options) -> Result<()> {
    let memory = roomy(options.keys);
    (0..options.keys).for_each(|i| claim_and_complete(&memory, i, LabelPolicy::Keep));
    let mut histogram = nanoseconds();
    for _ in 0..options.calls {
        let request = request(rand::random_range(0..options.keys), LabelPolicy::Keep);
        let started = Instant::now();
        let answer = now(memory.claim(&request));
        histogram.record(started.elapsed().as_nanos() as u64)?;
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

/// The whole way through the engine: first runs and replays.
fn engine(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = roomy(options.calls);
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
        histogram.record(started.elapsed().as_nanos() as u64)?;
        anyhow::ensure!(answer.replayed == replayed && answer.stored);
    }
    Ok(histogram)
}
