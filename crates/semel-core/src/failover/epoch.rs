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
    /// From now on so long; zero: not any more.
    async fn asked_for(&self) -> Result<Duration>;
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
        self.0.lock().is_some_and(|known| known.until >= Instant::now() + span)
    }

    /// The secondary said this when it was asked then. Replies overtake each other, and it never says less.
    pub(super) fn read(&self, remaining: Duration, read_at: Instant) {
        let until = Instant::now() + remaining.min(Self::FAR * 2);
        let mut known = self.0.lock();
        *known = Some(known.map_or(Known { read_at, until }, |known| Known {
            read_at: known.read_at.max(read_at),
            until: known.until.max(until),
        }));
    }

    /// True when it is not known to be over.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().is_none_or(|known| Instant::now() < known.until)
    }

    /// Nothing is known any more.
    #[cfg(all(test, not(shuttle)))]
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
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
}
