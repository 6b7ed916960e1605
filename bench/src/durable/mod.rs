//! Durable stores under the same load: one key's claim, then its completion, one sync per batch.

mod callers;
mod raw;
mod side;

pub use callers::{Done, Load};
pub use raw::{CLAIMED, COMPLETED, RawLog, read_all};
pub use side::{Side, fill, replays};

use crate::report::{latency, line, spread};

/// One line about the runs of one side.
pub fn describe(what: &str, runs: &mut [Done]) {
    runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let (low, mid, high) = (&runs[0], &runs[runs.len() / 2], &runs[runs.len() - 1]);
    let thousands = |done: &Done| format!("{:.1}K", done.rate / 1e3);
    let rates = format!("{}/s ({}–{})", thousands(mid), thousands(low), thousands(high));
    line(what, &format!("{rates}, {}, CPU {:.1} µs", latency(&mid.latency), mid.cpu), "", None);
}

/// How one side does beside another in the same turns: middle, lowest and highest, in percent.
pub fn percent(ours: &[Done], theirs: &[Done]) -> (f64, f64, f64) {
    let mut ratios: Vec<f64> =
        ours.iter().zip(theirs).map(|(o, t)| 1e2 * o.rate / t.rate).collect();
    spread(&mut ratios)
}
