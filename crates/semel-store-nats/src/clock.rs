//! What the leader's clock says, between two times that it told us.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use semel_core::Timestamp;

/// An estimate of the leader's time that is never ahead of it, and behind by as much as the quickest of
/// the last replies took.
///
/// It judges retention, which so never ends early, and how long a run lasts. It judges no lease.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The leader's time at `start` by each of the last replies, in microseconds. None is too late, so the
    /// latest is the best.
    zeros: Mutex<VecDeque<i64>>,
    /// What it last said, in milliseconds: what has expired stays so.
    said: AtomicU64,
}

impl ServerClock {
    /// Replies that count: after so many, a new leader's clock is all there is.
    const REPLIES: usize = 8;

    /// Before it is told anything, it is this machine's.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), zeros: Mutex::default(), said: AtomicU64::new(0) }
    }

    /// The leader's reply, which has just come, says that it is this time.
    pub(crate) fn tell(&self, told: Timestamp) {
        let told = i64::try_from(told.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        let mut zeros = self.zeros.lock();
        zeros.push_back(told.saturating_sub(micros(self.start.elapsed())));
        if zeros.len() > Self::REPLIES {
            zeros.pop_front();
        }
    }

    /// Never earlier than an answer given before.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.estimate().as_millis();
        Timestamp::from_millis(self.said.fetch_max(now, SeqCst).max(now))
    }

    fn estimate(&self) -> Timestamp {
        let Some(zero) = self.zeros.lock().iter().max().copied() else {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Timestamp::default().after(wall);
        };
        let now = zero.saturating_add(micros(self.start.elapsed()));
        Timestamp::from_millis(u64::try_from(now / 1000).unwrap_or_default())
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_leader_told() {
        let (clock, told) = (ServerClock::new(), Timestamp::from_millis(1_700_000_000_000));
        clock.tell(told);
        let after = Instant::now();
        let now = clock.now();
        assert!(now >= told);
        assert!(now <= told.after(after.elapsed()).after(Duration::from_millis(1)));
        // A reply that took a minute.
        clock.tell(Timestamp::from_millis(1_700_000_000_000 - 60_000));
        assert!(clock.now() >= told, "the quicker reply is the better one");
    }
}
