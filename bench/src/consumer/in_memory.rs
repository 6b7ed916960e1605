//! The source in memory with the memory store: what the pipeline itself costs.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use semel_bench::{
    events::{counting, message},
    report::{latency, line, nanoseconds, range},
};
use semel_consumer::{Consumer, memory::MemorySource};
use semel_core::{MemoryStore, Store};

use crate::ConsumerBench;

/// Messages of a run that measures one message at a time.
const SINGLE: u64 = 20_000;

pub(crate) async fn run(options: &ConsumerBench) -> Result<()> {
    println!("in memory, {} handlers, 300-byte CloudEvents, metrics on\n", options.concurrency);
    let (mut first, mut duplicates) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        let store = Arc::new(MemoryStore::new());
        first.push(throughput(options, store.clone(), options.messages).await?);
        duplicates.push(throughput(options, store, 0).await?);
    }
    let goal = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64 >= 100_000.0;
    let (first_met, duplicates_met) = (goal(&first), goal(&duplicates));
    let shown = |rates: Vec<f64>| format!("{} messages/s", range(rates.into_iter(), 0));
    line("first seen", &shown(first), "≥ 100,000", Some(first_met));
    line("duplicates", &shown(duplicates), "≥ 100,000", Some(duplicates_met));
    let store = Arc::new(MemoryStore::new());
    let first = single(store.clone(), SINGLE).await?;
    line(
        "first seen, one at a time",
        &latency(&first),
        "p99 < 1 ms",
        Some(below(&first, 1_000_000)),
    );
    let duplicates = single(store, 0).await?;
    line(
        "duplicate, one at a time",
        &latency(&duplicates),
        "p99 < 0.5 ms",
        Some(below(&duplicates, 500_000)),
    );
    Ok(())
}

fn below(histogram: &Histogram<u64>, nanoseconds: u64) -> bool {
    histogram.value_at_quantile(0.99) < nanoseconds
}

/// Messages per second until all are settled. `handled` of them are new to the store.
async fn throughput(options: &ConsumerBench, store: impl Store, expected: u64) -> Result<f64> {
    let source = MemorySource::new();
    for id in 0..options.messages {
        source.publish(message(id));
    }
    source.end();
    let handled = Arc::new(AtomicU64::new(0));
    let consumer = Consumer::builder(source)
        .name("bench")
        .store(store)?
        .drop_dead_letters()
        .concurrency(options.concurrency)
        .handler(counting(&handled))
        .build()?;
    let started = Instant::now();
    // Not in the main thread, which is none of the runtime's.
    tokio::spawn(consumer.run()).await??;
    let rate = options.messages as f64 / started.elapsed().as_secs_f64();
    let handled = handled.load(std::sync::atomic::Ordering::Relaxed);
    ensure!(handled == expected, "{handled} of {expected} events were handled");
    Ok(rate)
}

/// From publishing a message to its settlement, one message at a time.
async fn single(store: impl Store, expected: u64) -> Result<Histogram<u64>> {
    let (source, handled) = (MemorySource::new(), Arc::new(AtomicU64::new(0)));
    let consumer = Consumer::builder(source.clone())
        .name("bench")
        .store(store)?
        .drop_dead_letters()
        .handler(counting(&handled))
        .build()?;
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    let mut histogram = nanoseconds();
    for id in 0..SINGLE {
        let message = message(id);
        let started = Instant::now();
        source.publish(message);
        source.until_settled().await;
        histogram.record(u64::try_from(started.elapsed().as_nanos())?)?;
    }
    control.stop();
    running.await??;
    let handled = handled.load(std::sync::atomic::Ordering::Relaxed);
    ensure!(handled == expected, "{handled} of {expected} events were handled");
    Ok(histogram)
}
