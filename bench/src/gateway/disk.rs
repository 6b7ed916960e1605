//! The limit of the embedded store: the time of two syncs alone.

use std::{
    io::{Seek, SeekFrom, Write},
    time::{Duration, Instant},
};

use anyhow::Result;
use semel_bench::report::nanoseconds;

use crate::options::GatewayBenchOptions;

const BLOCK: [u8; 4096] = [7; 4096];

/// The 99th percentile, in milliseconds, of two writes into a preallocated file, each with a sync.
pub(crate) fn two_syncs(options: &GatewayBenchOptions) -> Result<f64> {
    let mut file = tempfile::tempfile_in(&options.folder)?;
    file.write_all(&BLOCK.repeat(2))?;
    file.sync_all()?;
    let mut latency = nanoseconds();
    let until = Instant::now() + options.time().min(Duration::from_millis(500));
    while Instant::now() < until {
        file.seek(SeekFrom::Start(0))?;
        let started_at = Instant::now();
        for _ in 0..2 {
            file.write_all(&BLOCK)?;
            file.sync_data()?;
        }
        latency.record(u64::try_from(started_at.elapsed().as_nanos())?)?;
    }
    Ok(latency.value_at_quantile(0.99) as f64 / 1e6)
}
