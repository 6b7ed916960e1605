//! Estimates the time of the stream's leader from the last times that it replied with.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use semel_core::Timestamp;

/// An estimate of the leader's time. It is never ahead of it, and behind by the duration of the quickest of the last
/// replies. After the first reply of a new leader, it is ahead by at most about
/// [`MAX_STEP_BACK`](Self::MAX_STEP_BACK).
///
/// It decides about retention, which therefore never ends early, and about the duration of a run, but not about a
/// lease.
#[derive(Debug)]
pub(crate) struct NatsClock {
    start: Instant,
    /// The leader's time at `start` by each of the last replies, in microseconds. No estimate is too late, so the
    /// latest is the best.
    start_estimates: Mutex<VecDeque<i64>>,
    /// The last returned time in milliseconds: what has expired stays expired, unless the clock was wrong.
    last_returned: AtomicU64,
}

impl NatsClock {
    /// The number of replies that count. After so many replies of a new leader, the old one's clock is forgotten.
    const MAX_ESTIMATES: usize = 8;
    /// If the leader's clock steps back further than this, it was wrong before, and the estimate follows it.
    pub(crate) const MAX_STEP_BACK: Duration = Duration::from_secs(2);

    /// Uses the clock of this machine until the leader has replied.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            start_estimates: Mutex::default(),
            last_returned: AtomicU64::new(0),
        }
    }

    /// Sets the time from a reply of the leader, which has just arrived and took `took`.
    pub(crate) fn set(&self, server_time: Timestamp, took: Duration) {
        let server_time =
            i64::try_from(server_time.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        let start_estimate = server_time.saturating_sub(micros(self.start.elapsed()));
        let latest =
            start_estimate.saturating_add(micros(took.saturating_add(Self::MAX_STEP_BACK)));
        let mut start_estimates = self.start_estimates.lock();
        if start_estimates.iter().any(|other| *other > latest) {
            start_estimates.clear();
        }
        start_estimates.push_back(start_estimate);
        if start_estimates.len() > Self::MAX_ESTIMATES {
            start_estimates.pop_front();
        }
    }

    /// The leader's time. It does not go back, except for a large step.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.estimate();
        let last_returned =
            Timestamp::from_millis(self.last_returned.fetch_max(now.as_millis(), SeqCst));
        if last_returned.since(now) <= Self::MAX_STEP_BACK {
            return last_returned.max(now);
        }
        self.last_returned.store(now.as_millis(), SeqCst);
        now
    }

    fn estimate(&self) -> Timestamp {
        let Some(start_estimate) = self.start_estimates.lock().iter().max().copied() else {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Timestamp::default().after(wall);
        };
        let now = start_estimate.saturating_add(micros(self.start.elapsed()));
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
    fn it_continues_from_the_last_reply_of_the_leader() {
        let (clock, server_time) = (NatsClock::new(), Timestamp::from_millis(1_700_000_000_000));
        let before = Instant::now();
        clock.set(server_time, Duration::ZERO);
        let now = clock.now();
        assert!(now >= server_time);
        assert!(now <= server_time.after(before.elapsed()).after(Duration::from_millis(1)));
        // A reply that took a minute.
        let minute = Duration::from_secs(60);
        clock.set(server_time.before(minute), minute);
        assert!(clock.now() >= server_time, "the quicker reply is the better one");
    }

    #[test]
    fn one_reply_of_a_fast_clock_is_corrected_by_the_next() {
        let (clock, server_time) = (NatsClock::new(), Timestamp::from_millis(1_700_000_000_000));
        clock.set(server_time.after(Duration::from_secs(7200)), Duration::ZERO);
        assert!(clock.now() > server_time.after(Duration::from_secs(7000)));
        clock.set(server_time, Duration::from_millis(1));
        assert!(clock.now() < server_time.after(Duration::from_secs(60)));
    }

    #[test]
    fn a_small_step_back_is_waited_out() {
        let (clock, server_time) = (NatsClock::new(), Timestamp::from_millis(1_700_000_000_000));
        clock.set(server_time, Duration::ZERO);
        let before = clock.now();
        for _ in 0..=NatsClock::MAX_ESTIMATES {
            clock.set(server_time.before(Duration::from_secs(1)), Duration::ZERO);
        }
        assert!(clock.now() >= before);
    }
}
