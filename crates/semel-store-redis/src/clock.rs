//! What the server's clock says, between two times that it told us.

use std::time::{Duration, Instant};

use semel_core::Timestamp;

/// An estimate of the server's time that is never behind it, by more than a call takes ahead of it.
///
/// It is only used where the server itself has already decided: for the age of a replay, and for when
/// to look at something next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    told: Timestamp,
    /// When that was asked for.
    asked: Instant,
}

impl ServerClock {
    /// An older estimate is refreshed.
    const FRESH: Duration = Duration::from_secs(3);

    pub(crate) const fn new(told: Timestamp, asked: Instant) -> Self {
        Self { told, asked }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.told.after(self.asked.elapsed())
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.asked.elapsed() > Self::FRESH
    }
}
