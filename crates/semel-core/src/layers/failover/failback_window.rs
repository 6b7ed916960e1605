//! The failback window: how long every node still has to read the secondary. The secondary itself keeps it.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{Result, sync::Mutex};

/// The time for which every node of a [`Failover`](crate::Failover) still has to read the secondary. The secondary
/// keeps it, by its own clock, so that all nodes agree.
#[async_trait]
pub trait FailbackWindow: fmt::Debug + Send + Sync + 'static {
    /// What is left of the window. Zero if it has ended, `None` if it was never opened.
    async fn remaining(&self) -> Result<Option<Duration>>;
    /// Makes the window end `span` from now at the earliest, for all nodes, and returns what is left of it.
    async fn extend_to(&self, span: Duration) -> Result<Duration>;
}

const _: Option<&dyn FailbackWindow> = None; // Fails to compile if `FailbackWindow` stops being object safe.

/// What this node knows of the window.
#[derive(Debug, Default)]
pub(super) struct LocalWindow(Mutex<Option<WindowReading>>);

#[derive(Clone, Copy, Debug)]
struct WindowReading {
    /// When the newest reply was requested.
    read_at: Instant,
    /// The end of the window by the newest reply.
    newest_end: Instant,
    /// The latest end by any reply: replies overtake each other, and the window never gets shorter unless the
    /// secondary lost it.
    latest_end: Instant,
}

impl LocalWindow {
    /// A reading older than this may be out of date.
    const FRESH: Duration = Duration::from_secs(10);
    /// Ten years. Longer windows count as this long.
    const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

    /// False only when a fresh reading shows that no claim on the secondary counts any more.
    pub(super) fn must_read_secondary(&self) -> bool {
        let now = Instant::now();
        self.0.lock().is_none_or(|reading| {
            now < reading.latest_end || now.duration_since(reading.read_at) > Self::FRESH
        })
    }

    /// True when all nodes will read the secondary for `span` from now on.
    pub(super) fn covers(&self, span: Duration) -> bool {
        let span = span.min(Self::FAR);
        self.0.lock().is_some_and(|reading| reading.newest_end >= Instant::now() + span)
    }

    /// Takes in the secondary's reply to a request that was made at `read_at`.
    pub(super) fn update(&self, remaining: Duration, read_at: Instant) {
        let end = Instant::now() + remaining.min(Self::FAR * 2);
        let mut reading = self.0.lock();
        let before = reading.unwrap_or(WindowReading { read_at, newest_end: end, latest_end: end });
        *reading = Some(WindowReading {
            read_at: before.read_at.max(read_at),
            newest_end: if before.read_at <= read_at { end } else { before.newest_end },
            latest_end: before.latest_end.max(end),
        });
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn replies_that_overtake_each_other_do_not_close_the_window() {
        const SPAN: Duration = Duration::from_secs(60);
        let (first, second) = (Instant::now(), Instant::now());
        for replies in
            [[(SPAN, first), (Duration::ZERO, second)], [(Duration::ZERO, second), (SPAN, first)]]
        {
            let window = LocalWindow::default();
            replies.into_iter().for_each(|(remaining, at)| window.update(remaining, at));
            assert!(window.must_read_secondary());
        }
    }

    #[test]
    fn a_secondary_that_lost_its_window_does_not_cover_a_span() {
        let (window, span) = (LocalWindow::default(), Duration::from_secs(60));
        window.update(span * 2, Instant::now());
        assert!(window.covers(span));
        window.update(Duration::ZERO, Instant::now());
        assert!(!window.covers(span) && window.must_read_secondary());
    }
}
