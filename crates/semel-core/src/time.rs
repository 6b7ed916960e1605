//! Store time. Only the store's clock decides when leases and retention end.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// An instant of store time: milliseconds since 1970, the finest step every backend can keep.
///
/// Stored plus one, so that `Option<Timestamp>` is as small as `Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The instant `millis` milliseconds after 1970 began.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(millis))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0.get() - 1
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.as_millis().saturating_sub(earlier.as_millis()))
    }

    /// The instant `span` before this one, at the beginning of time at the earliest.
    #[must_use]
    pub fn before(self, span: impl Into<Span>) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(span.into().as_millis()))
    }

    /// This instant moved by `span`, at the end of time at the latest.
    #[must_use]
    pub fn after(self, span: impl Into<Span>) -> Self {
        Self(self.0.saturating_add(span.into().as_millis()))
    }
}

/// A duration as stores keep it: whole milliseconds, rounded up, so that a lease is never shorter than its policy says.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// A span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same as a [`Duration`].
    #[must_use]
    pub const fn to_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// A hundred years at most, since servers cannot add longer spans to a time.
    #[must_use]
    pub fn bounded(self) -> Self {
        self.min(Self(100 * 365 * 86_400_000))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        let millis = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
        Self(duration.as_secs().saturating_mul(1000).saturating_add(millis))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_duration())
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::from_millis(0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({} ms)", self.as_millis())
    }
}

/// The clock of a store.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time. Never earlier than a time that was returned before.
    fn now(&self) -> Timestamp;
}

/// Wall time at the start, advanced by the monotonic clock, so that a change of the wall clock moves no lease.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started_at: u64,
    since: Instant,
}

impl SystemClock {
    /// A clock that starts at the current wall time.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started_at: Span::from(wall).as_millis(), since: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.started_at.saturating_add(passed))
    }
}

/// A clock for tests, which moves only by [`ManualClock::advance`]. Clones share one time.
///
/// ```
/// use semel_core::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(86_400));
/// assert_eq!(clock.now().since(before), Duration::from_secs(86_400));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// The first time of a manual clock: well after 1970, so that tests can use earlier times.
    pub const START: Timestamp = Timestamp::from_millis(1_000_000_000_000);

    /// A clock at [`ManualClock::START`].
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Self::START.as_millis())))
    }

    /// Advances the clock by `span`.
    pub fn advance(&self, span: Duration) {
        let span = Span::from(span).as_millis();
        self.0.update(Ordering::SeqCst, Ordering::SeqCst, |now| now.saturating_add(span));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_never_rounded_down() {
        assert_eq!(Span::from(Duration::from_nanos(1)).as_millis(), 1);
        assert_eq!(Span::from(Duration::from_millis(5)).as_millis(), 5);
        let end = Timestamp::from_millis(u64::MAX);
        assert_eq!(Timestamp::from_millis(1).after(Duration::MAX), end);
    }

    #[test]
    fn the_system_clock_does_not_run_backwards() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
