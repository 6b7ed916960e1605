//! What the server's clock says, between two times that it told us.

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use semel_core::Timestamp;

/// An estimate of the server's time that is never behind it, by more than a call takes ahead of it.
///
/// It is only used where the server itself has already decided: for the age of a replay, for what a
/// completed value says of itself, and for when to look at something next.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The server's time at `start`, in microseconds.
    zero: AtomicI64,
    /// When it was last asked for, in microseconds since `start`.
    asked: AtomicI64,
}

impl ServerClock {
    /// An older estimate is refreshed.
    const FRESH: Duration = Duration::from_secs(3);

    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), zero: AtomicI64::new(0), asked: AtomicI64::new(i64::MIN) }
    }

    /// The server told its time when it was asked then.
    pub(crate) fn tell(&self, told: Timestamp, asked: Instant) {
        let asked = micros(asked.saturating_duration_since(self.start));
        let told = i64::try_from(told.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
        self.zero.store(told.saturating_sub(asked), Relaxed);
        self.asked.store(asked, Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.zero.load(Relaxed).saturating_add(self.elapsed());
        Timestamp::from_millis(u64::try_from(now / 1000).unwrap_or_default())
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.elapsed().saturating_sub(self.asked.load(Relaxed)) > micros(Self::FRESH)
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
    fn it_goes_on_from_what_the_server_told() {
        let (clock, told) = (ServerClock::new(), Timestamp::from_millis(1_700_000_000_000));
        assert!(clock.is_stale(), "nobody told it anything");
        let asked = Instant::now();
        clock.tell(told, asked);
        assert!(!clock.is_stale());
        let (least, now) = (told.after(asked.elapsed()), clock.now());
        assert!(now.after(Duration::from_millis(1)) >= least);
        assert!(now <= told.after(asked.elapsed()).after(Duration::from_millis(1)));
    }
}
