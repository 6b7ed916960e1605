//! Callers that claim and complete one key after the other.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use crate::report::{cpu, nanoseconds};
use anyhow::Result;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;

use super::side::Side;

/// So many callers, for so long, on keys from this number on.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many.
    pub callers: usize,
    /// For how long.
    pub time: Duration,
    /// The first key's number.
    pub first: u64,
}

/// What they did.
#[derive(Debug)]
pub struct Done {
    /// Claims and completions per second.
    pub rate: f64,
    /// Keys claimed and completed.
    pub keys: u64,
    /// CPU microseconds of each claim or completion, on both sides of the queue.
    pub cpu: f64,
    /// Of each claim and each completion.
    pub latency: Histogram<u64>,
}

impl Load {
    /// Lets them go.
    ///
    /// # Errors
    ///
    /// What the side answers.
    pub fn run(&self, side: &impl Side) -> Result<Done> {
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
