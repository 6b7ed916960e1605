//! How long to wait before the next attempt.

use std::time::Duration;

use rand::RngExt;

/// Milliseconds before a connection is tried for a second time.
const FIRST: u64 = 50;

/// Pauses that double up to a bound, each of them shortened at random.
#[derive(Debug)]
pub(crate) struct Backoff {
    longest: u64,
    limit: u64,
}

impl Backoff {
    /// Between milliseconds.
    pub(crate) const fn between(first: u64, limit: u64) -> Self {
        Self { longest: first, limit }
    }

    /// For a first connection: the first pause is none.
    pub(crate) fn at_once() -> Self {
        Self { longest: 0, ..Self::default() }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = if longest == 0 { FIRST } else { (2 * longest).min(self.limit) };
        Duration::from_millis(rand::rng().random_range(longest / 2..=longest))
    }
}

/// For connecting.
impl Default for Backoff {
    fn default() -> Self {
        Self::between(FIRST, 1_000)
    }
}
