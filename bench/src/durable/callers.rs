//! Concurrent callers, each of which claims and completes one key after the other.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use crate::report::{cpu, nanoseconds};
use anyhow::Result;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;

use super::side::DurableSide;

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct DurableLoad {
    /// The number of callers.
    pub callers: usize,
    /// The time.
    pub time: Duration,
    /// The number of the first key.
    pub first: u64,
}

/// The result of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// Claims and completions per second.
    pub rate: f64,
    /// Keys claimed and completed.
    pub keys: u64,
    /// CPU microseconds per claim or completion, in callers and writer.
    pub cpu: f64,
    /// The latencies of claims and completions.
    pub latency: Histogram<u64>,
}

impl DurableLoad {
    /// Runs the load.
    ///
    /// # Errors
    ///
    /// The error of the side.
    pub fn run(&self, side: &impl DurableSide) -> Result<LoadResult> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (next, latency) = (Cell::new(self.first), RefCell::new(nanoseconds()));
        let (started, cpu_before) = (Instant::now(), cpu());
        let timed = |from: Instant| {
            let nanos = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latency.borrow_mut().saturating_record(nanos);
        };
        let caller = || async {
            while started.elapsed() < self.time {
                let i = next.replace(next.get() + 1);
                let from = Instant::now();
                let owned = side.claim(i).await?;
                timed(from);
                let from = Instant::now();
                side.complete(i, owned).await?;
                timed(from);
            }
            anyhow::Ok(())
        };
        runtime.block_on(try_join_all((0..self.callers).map(|_| caller())))?;
        let (keys, seconds) = (next.get() - self.first, started.elapsed().as_secs_f64());
        let steps = 2.0 * keys as f64;
        let cpu = (cpu() - cpu_before).as_secs_f64() * 1e6 / steps;
        Ok(LoadResult { rate: steps / seconds, keys, cpu, latency: latency.into_inner() })
    }
}
