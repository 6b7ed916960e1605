//! How long the secondary has to be asked: said by the secondary itself, for all nodes.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{Result, sync::Mutex};

/// Where all nodes read how long the secondary of a [`Failover`](crate::Failover) has to be asked. Kept and
/// counted by the secondary's own clock.
#[async_trait]
pub trait Epoch: fmt::Debug + Send + Sync + 'static {
    /// From now on so long; zero: not any more. `None`: nobody ever wanted that.
    async fn asked_for(&self) -> Result<Option<Duration>>;
    /// Makes that `span` at least, for all nodes, and says how long it is now.
    async fn ask_for(&self, span: Duration) -> Result<Duration>;
}

const _: Option<&dyn Epoch> = None; // Fails to compile if `Epoch` stops being object safe.

/// What this node knows of it.
#[derive(Debug, Default)]
pub(super) struct Window(Mutex<Option<Known>>);

#[derive(Clone, Copy, Debug)]
struct Known {
    read_at: Instant,
    /// By the last reply.
    told: Instant,
    /// By all of them: they overtake each other, and the secondary never says less unless it forgot.
    until: Instant,
}

impl Window {
    /// What was read longer ago may have changed since.
    const FRESH: Duration = Duration::from_secs(10);
    /// Ten years: longer is not told apart.
    const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

    /// True unless it is known that nobody claimed anything on the secondary that still counts.
    pub(super) fn must_ask(&self) -> bool {
        let now = Instant::now();
        self.0.lock().is_none_or(|known| {
            now < known.until || now.duration_since(known.read_at) > Self::FRESH
        })
    }

    /// True when all nodes will ask for `span` from now on.
    pub(super) fn covers(&self, span: Duration) -> bool {
        let span = span.min(Self::FAR);
        self.0.lock().is_some_and(|known| known.told >= Instant::now() + span)
    }

    /// The secondary said this when it was asked then.
    pub(super) fn read(&self, remaining: Duration, read_at: Instant) {
        let until = Instant::now() + remaining.min(Self::FAR * 2);
        let mut known = self.0.lock();
        let before = known.unwrap_or(Known { read_at, told: until, until });
        *known = Some(Known {
            read_at: before.read_at.max(read_at),
            told: if before.read_at <= read_at { until } else { before.told },
            until: before.until.max(until),
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
            let window = Window::default();
            replies.into_iter().for_each(|(remaining, asked)| window.read(remaining, asked));
            assert!(window.must_ask());
        }
    }

    #[test]
    fn a_secondary_that_forgot_how_long_it_is_to_be_asked_is_told_again() {
        let (window, span) = (Window::default(), Duration::from_secs(60));
        window.read(span * 2, Instant::now());
        assert!(window.covers(span));
        window.read(Duration::ZERO, Instant::now());
        assert!(!window.covers(span) && window.must_ask());
    }
}
