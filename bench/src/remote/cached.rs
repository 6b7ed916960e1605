//! The cache: a hit compared with the memory store, a miss compared with the store behind the cache.

use std::time::Instant;

use anyhow::Result;
use semel_bench::report::{line, spread};
use semel_core::{Cached, MemoryStore, Store};

use crate::callers::{claim, cycle, granted, replayed};

/// How much to measure.
#[derive(clap::Args)]
pub(crate) struct CachedBenchOptions {
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 9)]
    repeats: usize,
    /// Calls of each run.
    #[arg(long, default_value_t = 500_000)]
    calls: u64,
    /// Completed keys.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
}

pub(crate) async fn run(options: &CachedBenchOptions) -> Result<()> {
    let (bare, behind) = (MemoryStore::new(), MemoryStore::new());
    let cached = Cached::new(behind, 100_000);
    for i in 0..options.keys {
        cycle(&bare, &claim(i)).await?;
        cycle(&cached, &claim(i)).await?;
        replayed(&cached, &claim(i)).await?;
    }
    let (mut memory, mut hits) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        memory.push(options.replays(&bare).await?);
        hits.push(options.replays(&cached).await?);
    }
    report("replay, memory store", "hit of the cache", &mut memory, &mut hits, None);
    let (mut bare_misses, mut misses) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats {
        // The store behind the cache is of the same kind: the difference is the cost of the cache.
        let (one, other) = (MemoryStore::new(), Cached::new(MemoryStore::new(), 100_000));
        bare_misses.push(options.claims(&one).await?);
        misses.push(options.claims(&other).await?);
    }
    report("claim, memory store", "miss of the cache", &mut bare_misses, &mut misses, None);
    Ok(())
}

impl CachedBenchOptions {
    /// Nanoseconds of a replay.
    async fn replays(&self, store: &impl Store) -> Result<f64> {
        let started = Instant::now();
        for i in 0..self.calls {
            replayed(store, &claim(i % self.keys)).await?;
        }
        Ok(started.elapsed().as_nanos() as f64 / self.calls as f64)
    }

    /// Nanoseconds of a first claim.
    async fn claims(&self, store: &impl Store) -> Result<f64> {
        let calls = self.calls / 2;
        let started = Instant::now();
        for i in 0..calls {
            granted(store, &claim(i)).await?;
        }
        Ok(started.elapsed().as_nanos() as f64 / calls as f64)
    }
}

fn report(one: &str, other: &str, bare: &mut [f64], ours: &mut [f64], goal: Option<bool>) {
    let ((bare, ..), (ours, low, high)) = (spread(bare), spread(ours));
    line(one, &format!("{bare:.0} ns"), "", None);
    let text = format!("{ours:.0} ns ({low:.0}–{high:.0}), {:+.0} ns", ours - bare);
    line(other, &text, "", goal);
}
