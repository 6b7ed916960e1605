//! Callers that claim and complete one key after the other.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use semel_bench::report::{cpu, nanoseconds};

use super::side::Side;

/// So many callers, for so long, on keys from this number on.
pub(super) struct Load {
    pub(super) callers: usize,
    pub(super) time: Duration,
    pub(super) first: u64,
}

/// What they did.
pub(super) struct Done {
    /// Claims and completions per second.
    pub(super) rate: f64,
    pub(super) keys: u64,
    /// CPU microseconds of each claim or completion, on both sides of the queue.
    pub(super) cpu: f64,
    /// Of each claim and each completion.
    pub(super) latency: Histogram<u64>,
}

impl Load {
    pub(super) fn run(&self, side: &impl Side) -> Result<Done> {
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
        Ok(Done { rate: steps / seconds, keys, cpu, latency: latency.into_inner() })
    }
}
