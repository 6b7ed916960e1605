//! How long to wait before the next attempt to connect.

use std::time::Duration;

use rand::RngExt;

/// Pauses that double up to a bound, each of them shortened at random.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tried: u32,
}

impl Backoff {
    const FIRST: u64 = 50;
    const LONGEST: u64 = 2_000;

    pub(crate) fn next(&mut self) -> Duration {
        let longest = (Self::FIRST << self.tried.min(10)).min(Self::LONGEST);
        self.tried = self.tried.saturating_add(1);
        Duration::from_millis(rand::rng().random_range(longest / 2..=longest))
    }
}
