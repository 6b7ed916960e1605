//! What the leader's clock says, between two times that it told us.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use semel_core::Timestamp;

/// An estimate of the leader's time that is never ahead of it, and behind by as much as the quickest of
/// the last replies took. After a new leader's first reply it is ahead by about [`STEP`](Self::STEP) at most.
///
/// It judges retention, which so never ends early, and how long a run lasts. It judges no lease.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The leader's time at `start` by each of the last replies, in microseconds. None is too late, so the
    /// latest is the best.
    zeros: Mutex<VecDeque<i64>>,
    /// What it last said, in milliseconds: what has expired stays so, unless the clock was wrong.
    said: AtomicU64,
}

impl ServerClock {
    /// Replies that count: after so many, a new leader's clock is all there is.
    const REPLIES: usize = 8;
    /// A clock that is set back further than this was wrong before, and is followed.
    pub(crate) const STEP: Duration = Duration::from_secs(2);

    /// Before it is told anything, it is this machine's.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), zeros: Mutex::default(), said: AtomicU64::new(0) }
    }

    /// The leader's reply, which took so long and has just come, says that it is this time.
    pub(crate) fn tell(&self, told: Timestamp, took: Duration) {
        let told = i64::try_from(told.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        let zero = told.saturating_sub(micros(self.start.elapsed()));
        let latest = zero.saturating_add(micros(took.saturating_add(Self::STEP)));
        let mut zeros = self.zeros.lock();
        if zeros.iter().any(|other| *other > latest) {
            zeros.clear();
        }
        zeros.push_back(zero);
        if zeros.len() > Self::REPLIES {
            zeros.pop_front();
        }
    }

    /// Never a little earlier than an answer given before.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.estimate();
        let said = Timestamp::from_millis(self.said.fetch_max(now.as_millis(), SeqCst));
        if said.since(now) <= Self::STEP {
            return said.max(now);
        }
        self.said.store(now.as_millis(), SeqCst);
        now
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
        let before = Instant::now();
        clock.tell(told, Duration::ZERO);
        let now = clock.now();
        assert!(now >= told);
        assert!(now <= told.after(before.elapsed()).after(Duration::from_millis(1)));
        // A reply that took a minute.
        let minute = Duration::from_secs(60);
        clock.tell(told.before(minute), minute);
        assert!(clock.now() >= told, "the quicker reply is the better one");
    }

    #[test]
    fn one_look_at_a_fast_clock_does_not_last() {
        let (clock, told) = (ServerClock::new(), Timestamp::from_millis(1_700_000_000_000));
        clock.tell(told.after(Duration::from_secs(7200)), Duration::ZERO);
        assert!(clock.now() > told.after(Duration::from_secs(7000)));
        clock.tell(told, Duration::from_millis(1));
        assert!(clock.now() < told.after(Duration::from_secs(60)));
    }

    #[test]
    fn a_small_step_back_is_waited_out() {
        let (clock, told) = (ServerClock::new(), Timestamp::from_millis(1_700_000_000_000));
        clock.tell(told, Duration::ZERO);
        let before = clock.now();
        for _ in 0..=ServerClock::REPLIES {
            clock.tell(told.before(Duration::from_secs(1)), Duration::ZERO);
        }
        assert!(clock.now() >= before);
    }
}
