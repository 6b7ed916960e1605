//! How long to wait before the next attempt. Pauses double up to a limit, with jitter.

use std::time::Duration;

use rand::RngExt;

/// Milliseconds before a connection is tried for a second time.
const FIRST: u64 = 50;

/// Pauses that double up to a limit. Each is between half and all of its nominal length, at random.
#[derive(Debug)]
pub(crate) struct PgBackoff {
    longest: u64,
    limit: u64,
}

impl PgBackoff {
    /// From `first` to `limit` milliseconds.
    pub(crate) const fn between(first: u64, limit: u64) -> Self {
        Self { longest: first, limit }
    }

    /// For a first connection: there is no first pause.
    pub(crate) fn at_once() -> Self {
        Self { longest: 0, ..Self::default() }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = if longest == 0 { FIRST } else { (2 * longest).min(self.limit) };
        Duration::from_millis(rand::rng().random_range(longest / 2..=longest))
    }
}

/// For reconnecting.
impl Default for PgBackoff {
    fn default() -> Self {
        Self::between(FIRST, 1_000)
    }
}
