//! What the leader's clock says, between two times that it told us.

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use semel_core::Timestamp;

/// An estimate of the leader's time that is never ahead of it, and behind by as much as a reply takes.
///
/// It judges retention, which so never ends early, and how long a run lasts. It judges no lease.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The leader's time at `start`, in microseconds.
    zero: AtomicI64,
}

impl ServerClock {
    /// Before it is told anything, it is this machine's.
    pub(crate) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), zero: AtomicI64::new(micros(wall)) }
    }

    /// The leader's reply, which has just come, says that it is this time.
    pub(crate) fn tell(&self, told: Timestamp) {
        let told = i64::try_from(told.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        self.zero.store(told.saturating_sub(micros(self.start.elapsed())), Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.zero.load(Relaxed).saturating_add(micros(self.start.elapsed()));
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
    }
}
