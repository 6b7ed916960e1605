//! The memory store beside a plain sharded map, and the engine on top of it.

mod map;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use allocation_counter::measure;
use anyhow::{Context, Result};
use futures_util::FutureExt;
use hdrhistogram::Histogram;
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Engine, Fingerprint, Key, KeyHash, LabelPolicy, Labels, ManualClock,
    MemoryStore, Nonce, OnLostOwner, Outcome, Policy, Principal, Scope, Store, Terms, Verdict,
};

use self::map::PlainMap;
use crate::report::{latency, line, nanoseconds, spread};

const BODY: [u8; 300] = [7; 300];

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
    size(options)?;
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

fn size(options: &Options) -> Result<()> {
    let keys = options.keys;
    let memory = roomy(keys);
    let fill = || (0..keys).for_each(|i| claim_and_complete(&memory, i, LabelPolicy::Keep));
    let bytes = measure(fill).bytes_current as f64 / keys as f64;
    line("bytes per record, 300-byte outcome", &format!("{bytes:.0} B"), "≤ 700 B", Some(bytes <= 700.0));
    let replays = replay_latency(&memory, options)?;
    line("replay, store alone", &latency(&replays), "", None);
    Ok(())
}

fn replay_latency(memory: &MemoryStore, options: &Options) -> Result<Histogram<u64>> {
    let mut histogram = nanoseconds();
    for _ in 0..options.calls {
        let request = request(rand::random_range(0..options.keys), LabelPolicy::Keep);
        let started = Instant::now();
        let answer = now(memory.claim(&request));
        histogram.record(started.elapsed().as_nanos() as u64)?;
        anyhow::ensure!(matches!(answer, Ok(Claim::Replay(_))), "not a replay: {answer:?}");
    }
    Ok(histogram)
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
    let counted = measure(|| runtime.block_on(calls(&engine, 1000, true)).map(drop).expect("replays"));
    let idle = measure(|| runtime.block_on(async { drop(keys(1000)) }));
    let count = (counted.count_total - idle.count_total) as f64 / 1000.0;
    line("allocations per replay, engine", &format!("{count:.1}"), "", None);
    Ok(())
}

fn keys(count: u64) -> Vec<Key> {
    let scope = Scope::new("bench", Principal::from("user-7"), "charge");
    (0..count).map(|i| scope.key(format!("order-{i}")).expect("the key is valid")).collect()
}

async fn calls(engine: &Engine, count: u64, replayed: bool) -> Result<Histogram<u64>> {
    let mut histogram = nanoseconds();
    let asked = Fingerprint::of_bytes(b"order");
    for key in keys(count) {
        let started = Instant::now();
        let work = |_| async { Verdict::Final(Outcome::success(BODY.to_vec())) };
        let answer = engine.run_raw(key, asked, work).await?;
        histogram.record(started.elapsed().as_nanos() as u64)?;
        anyhow::ensure!(answer.replayed == replayed && answer.stored);
    }
    Ok(histogram)
}

fn claim_and_complete(store: &MemoryStore, i: u64, labels: LabelPolicy) {
    let Ok(Claim::Granted(lease)) = now(store.claim(&request(i, labels))) else {
        panic!("key {i} is not free");
    };
    let outcome = Arc::new(Outcome::success(BODY.to_vec()));
    let complete = CompleteRequest { owner: lease.owner, outcome };
    now(store.complete(&complete)).expect("the memory store answers");
}

fn request(i: u64, labels: LabelPolicy) -> ClaimRequest {
    let day = Duration::from_secs(86_400);
    ClaimRequest {
        key: KeyHash::from_bytes(spread_out::<32>(i)),
        fingerprint: Fingerprint::from_stored(spread_out::<32>(!i)),
        nonce: Nonce::from_bytes(spread_out::<16>(i)),
        terms: Terms {
            lease: Duration::from_secs(30),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: day,
            failure_retention: day,
        },
        labels: (labels == LabelPolicy::Keep)
            .then(|| Labels::new("bench", "user-7", "charge", "0f8fad5b-d9cb-469f-a165-70867728950e")),
    }
}

/// `i` as N well-mixed bytes, the same every time.
fn spread_out<const N: usize>(i: u64) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        let mut z = i.wrapping_add(at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes
}

fn roomy(keys: u64) -> MemoryStore {
    let entries = usize::try_from(keys).unwrap_or(usize::MAX) + 1;
    let builder = MemoryStore::builder().max_entries(entries).max_bytes(usize::MAX / 2);
    builder.build().expect("the bounds are valid")
}

/// The memory store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().context("the memory store waited").expect("it never does")
}
