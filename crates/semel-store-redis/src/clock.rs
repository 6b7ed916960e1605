//! Estimates the server's time from the last time that it replied with.

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use semel_core::Timestamp;

/// Two estimates of the server's time: one is never ahead of it, one never behind. They differ by the duration of the
/// call that read the time. They are wrong after the server's clock was set, or this process was suspended, until the
/// time is read again.
///
/// They are used only where the server has decided already: for the age of a replay, for the times in a completed
/// record, and for the time of the next check.
#[derive(Debug)]
pub(crate) struct RedisClock {
    start: Instant,
    /// The server's time at `start` at the earliest and at the latest, in microseconds.
    earliest_at_start: AtomicI64,
    latest_at_start: AtomicI64,
    /// When the last request for the time was sent, in microseconds since `start`.
    sent_at: AtomicI64,
}

impl RedisClock {
    /// Older estimates are read again.
    const MAX_AGE: Duration = Duration::from_secs(3);

    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            earliest_at_start: AtomicI64::new(0),
            latest_at_start: AtomicI64::new(0),
            sent_at: AtomicI64::new(i64::MIN),
        }
    }

    /// Sets the server's time, in whole milliseconds, from a reply to a request that was sent at `sent_at`.
    pub(crate) fn set(&self, server_time: Timestamp, sent_at: Instant) {
        let sent_at = micros(sent_at.saturating_duration_since(self.start));
        let server_time =
            i64::try_from(server_time.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        self.earliest_at_start.store(server_time.saturating_sub(self.elapsed()), Relaxed);
        self.latest_at_start
            .store(server_time.saturating_add(999).saturating_sub(sent_at), Relaxed);
        self.sent_at.store(sent_at, Relaxed);
    }

    /// Never behind the server: what has ended for the server has ended by this time too.
    pub(crate) fn now(&self) -> Timestamp {
        self.since(&self.latest_at_start)
    }

    /// Never ahead of the server: what is written with this time is not taken for newer than it is.
    pub(crate) fn earliest(&self) -> Timestamp {
        self.since(&self.earliest_at_start)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.elapsed().saturating_sub(self.sent_at.load(Relaxed)) > micros(Self::MAX_AGE)
    }

    fn since(&self, start: &AtomicI64) -> Timestamp {
        let now = start.load(Relaxed).saturating_add(self.elapsed());
        Timestamp::from_millis(u64::try_from(now / 1000).unwrap_or_default())
    }

    fn elapsed(&self) -> i64 {
        micros(self.start.elapsed())
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_time_is_between_the_two() {
        let clock = RedisClock::new();
        assert!(clock.is_stale(), "the time was never read");
        let (server_time, call) =
            (Timestamp::from_millis(1_700_000_000_000), Duration::from_millis(20));
        let sent_at = Instant::now();
        std::thread::sleep(call);
        let received_at = Instant::now();
        clock.set(server_time, sent_at);
        assert!(!clock.is_stale());
        assert!(clock.now() >= server_time.after(call));
        assert!(
            clock.now() <= server_time.after(sent_at.elapsed()).after(Duration::from_millis(1))
        );
        assert!(
            clock.earliest()
                <= server_time.after(received_at.elapsed()).after(Duration::from_millis(1))
        );
        std::thread::sleep(call);
        assert!(clock.earliest() >= server_time.after(call));
    }
}
