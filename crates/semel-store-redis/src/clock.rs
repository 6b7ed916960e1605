//! What the server's clock says, between two times that it told us.

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use semel_core::Timestamp;

/// Two estimates of the server's time, between which it is: as far apart as the call that told it took,
/// unless the server's clock is set, or this process is suspended, and until it is told again.
///
/// They are only used where the server itself has already decided: for the age of a replay, for what a
/// completed value says of itself, and for when to look at something next.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The server's time at `start` at the earliest and at the latest, in microseconds.
    earliest: AtomicI64,
    latest: AtomicI64,
    /// When it was last asked for, in microseconds since `start`.
    asked: AtomicI64,
}

impl ServerClock {
    /// Older estimates are refreshed.
    const FRESH: Duration = Duration::from_secs(3);

    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            earliest: AtomicI64::new(0),
            latest: AtomicI64::new(0),
            asked: AtomicI64::new(i64::MIN),
        }
    }

    /// The server told its time, in whole milliseconds, when it was asked then.
    pub(crate) fn tell(&self, told: Timestamp, asked: Instant) {
        let asked = micros(asked.saturating_duration_since(self.start));
        let told = i64::try_from(told.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        self.earliest.store(told.saturating_sub(self.elapsed()), Relaxed);
        self.latest.store(told.saturating_add(999).saturating_sub(asked), Relaxed);
        self.asked.store(asked, Relaxed);
    }

    /// Never behind the server: whatever ends has ended by this.
    pub(crate) fn now(&self) -> Timestamp {
        self.since(&self.latest)
    }

    /// Never ahead of the server: nobody takes what is written with this for newer than it is.
    pub(crate) fn at_least(&self) -> Timestamp {
        self.since(&self.earliest)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.elapsed().saturating_sub(self.asked.load(Relaxed)) > micros(Self::FRESH)
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
        let clock = ServerClock::new();
        assert!(clock.is_stale(), "nobody told it anything");
        let (told, call) = (Timestamp::from_millis(1_700_000_000_000), Duration::from_millis(20));
        let asked = Instant::now();
        std::thread::sleep(call);
        let heard = Instant::now();
        clock.tell(told, asked);
        assert!(!clock.is_stale());
        assert!(clock.now() >= told.after(call));
        assert!(clock.now() <= told.after(asked.elapsed()).after(Duration::from_millis(1)));
        assert!(clock.at_least() <= told.after(heard.elapsed()).after(Duration::from_millis(1)));
        std::thread::sleep(call);
        assert!(clock.at_least() >= told.after(call));
    }
}
