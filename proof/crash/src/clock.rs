//! One clock for all processes of a run.

use nix::time::{ClockId, clock_gettime};

/// Microseconds on the machine's monotonic clock, which all its processes share.
///
/// # Panics
///
/// On a system without a monotonic clock.
#[must_use]
pub fn mono() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Unix has a monotonic clock");
    let seconds = u64::try_from(now.tv_sec()).unwrap_or_default();
    let micros = u64::try_from(now.tv_nsec() / 1000).unwrap_or_default();
    seconds * 1_000_000 + micros
}
