//! The memory store: what source and pipeline cost.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::{Result, ensure};
use semel_bench::events::counting;
use semel_core::MemoryStore;

use crate::{KafkaBench, counted_source, topic::BenchTopic};

/// Messages per second that are new to the store, and of the same messages when a new group reads them again.
pub(crate) async fn rates(topic: &BenchTopic, options: &KafkaBench) -> Result<[f64; 2]> {
    let store = Arc::new(MemoryStore::new());
    let mut rates = [0.0; 2];
    for (rate, expected) in rates.iter_mut().zip([options.messages, 0]) {
        let handled = Arc::new(AtomicU64::new(0));
        *rate = counted_source::rate(topic, options.messages, |builder| {
            let builder = builder.store(store.clone())?.concurrency(options.concurrency);
            builder.handler(counting(&handled)).build()
        })
        .await?;
        let handled = handled.load(Relaxed);
        ensure!(handled == expected, "{handled} of {expected} events were handled");
    }
    Ok(rates)
}
