//! The failover layer: a primary store, and a secondary while the primary is unreachable. Best effort: keys whose
//! work may run twice are counted.

#![deny(clippy::missing_trait_methods)]

mod builder;
mod claim;
mod claim_origins;
mod failback_window;
mod operator;
mod store;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use self::{builder::FailoverBuilder, failback_window::FailbackWindow};
use self::{claim_origins::ClaimOrigins, failback_window::LocalWindow};
use crate::{
    ChangeFeed, Observed, Store, background,
    change_feed::FeedRelay,
    layers::circuit_breaker::CircuitBreaker,
    sync::{TaskTracker, time::sleep},
};

/// How often a node reads the failback window.
const READ_EVERY: Duration = Duration::from_secs(1);

/// A **primary** store, and a **secondary** while the primary is unreachable.
///
/// Best effort, and only with explicit permission: while a node cannot reach the primary, it does not know what
/// ran there, and work may run twice. Each such key is counted ([`Failover::unprotected`], and
/// `idempotency_unprotected_total`). Where that is not acceptable, an [`Arbiter`](crate::Arbiter) has the same
/// two stores and runs nothing twice.
///
/// Every node reads a key that was claimed on the secondary there until it has expired, also after the primary is back.
/// How long that is, is kept in the secondary ([`FailbackWindow`]), and every node reads it each second.
#[derive(Debug)]
pub struct Failover<P, S>(Arc<FailoverInner<P, S>>);

#[derive(Debug)]
struct FailoverInner<P, S> {
    primary: Arc<Observed<P>>,
    secondary: Arc<Observed<Arc<S>>>,
    /// The secondary, for its failback window.
    stored_window: Arc<S>,
    primary_circuit: Arc<CircuitBreaker>,
    secondary_circuit: Arc<CircuitBreaker>,
    window: LocalWindow,
    origins: Arc<ClaimOrigins>,
    unprotected: UnprotectedCounts,
    feed: ChangeFeed,
    tasks: TaskTracker,
    /// Forwards the changes of both stores.
    _relay: Arc<FeedRelay>,
}

#[derive(Debug, Default)]
struct UnprotectedCounts {
    primary_unreachable: AtomicU64,
    secondary_unasked: AtomicU64,
}

/// Keys that a [`Failover`] could not protect since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnprotectedKeys {
    /// Keys that the secondary granted while the primary was unreachable.
    pub primary_unreachable: u64,
    /// Keys that the primary granted although the secondary, which may have had them, did not reply.
    pub secondary_unasked: u64,
}

impl<P: Store, S: Store + FailbackWindow> Failover<P, S> {
    /// Sets up a failover.
    pub const fn builder(primary: P, secondary: S) -> FailoverBuilder<P, S> {
        FailoverBuilder::new(primary, secondary)
    }

    /// The keys that could not be protected.
    #[must_use]
    pub fn unprotected(&self) -> UnprotectedKeys {
        let counts = &self.0.unprotected;
        UnprotectedKeys {
            primary_unreachable: counts.primary_unreachable.load(Relaxed),
            secondary_unasked: counts.secondary_unasked.load(Relaxed),
        }
    }

    fn open(primary: P, secondary: S) -> Self {
        let feed = ChangeFeed::new();
        let relay = FeedRelay::to(&feed);
        let sources = [primary.info().change_feed, secondary.info().change_feed];
        sources.iter().flatten().for_each(|source| relay.forward(source));
        let stored_window = Arc::new(secondary);
        let primary = Arc::new(Observed::new(primary));
        let secondary = Arc::new(Observed::new(stored_window.clone()));
        let inner = Arc::new(FailoverInner {
            primary_circuit: CircuitBreaker::for_store(primary.clone()),
            secondary_circuit: CircuitBreaker::for_store(secondary.clone()),
            primary,
            secondary,
            stored_window,
            window: LocalWindow::default(),
            origins: Arc::new(ClaimOrigins::new()),
            unprotected: UnprotectedCounts::default(),
            feed,
            tasks: TaskTracker::new(),
            _relay: relay,
        });
        background::handle().spawn(keep_reading_window(Arc::downgrade(&inner)));
        Self(inner)
    }
}

/// Reads the failback window for as long as the store lives.
async fn keep_reading_window<P: Store, S: Store + FailbackWindow>(
    inner: Weak<FailoverInner<P, S>>,
) {
    while let Some(inner) = inner.upgrade() {
        inner.read_window().await;
        drop(inner);
        sleep(READ_EVERY).await;
    }
}
