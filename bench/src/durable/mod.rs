//! Durable stores under the same load: claim and completion of each key, with one sync per batch.

mod callers;
mod raw;
mod side;

pub use callers::{DurableLoad, LoadResult};
pub use raw::{CLAIMED, COMPLETED, RawLog, read_all};
pub use side::{DurableSide, fill, replays};

use crate::report::{latency, line, spread};

/// Prints one line about the runs of one side.
pub fn describe(what: &str, runs: &mut [LoadResult]) {
    runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let (low, mid, high) = (&runs[0], &runs[runs.len() / 2], &runs[runs.len() - 1]);
    let thousands = |done: &LoadResult| format!("{:.1}K", done.rate / 1e3);
    let rates = format!("{}/s ({}–{})", thousands(mid), thousands(low), thousands(high));
    line(what, &format!("{rates}, {}, CPU {:.1} µs", latency(&mid.latency), mid.cpu), "", None);
}

/// The rate of one side in percent of another, by turn: median, minimum and maximum.
pub fn percent(ours: &[LoadResult], theirs: &[LoadResult]) -> (f64, f64, f64) {
    let mut ratios: Vec<f64> =
        ours.iter().zip(theirs).map(|(o, t)| 1e2 * o.rate / t.rate).collect();
    spread(&mut ratios)
}
