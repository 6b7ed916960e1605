//! One store, and another while it is unreachable. Best effort: what may run twice is counted.

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
use self::{claim_origins::Homes, failback_window::LocalWindow};
use crate::{
    ChangeFeed, Observed, Store, background,
    change_feed::FeedRelay,
    layers::circuit_breaker::CircuitBreaker,
    sync::{TaskTracker, time::sleep},
};

/// How often a node reads how long the secondary has to be asked.
const READ_EVERY: Duration = Duration::from_secs(1);

/// A **primary** store, and a **secondary** while the primary is unreachable.
///
/// Best effort, and only for those who say so: while a node cannot reach the primary, it does not know what
/// ran there, and work may run twice. Each such key is counted ([`Failover::unprotected`], and
/// `idempotency_unprotected_total`). Where that is not acceptable, an [`Arbiter`](crate::Arbiter) has the same
/// two stores and runs nothing twice.
///
/// What is claimed on the secondary is asked for there by every node until it has expired, also after the
/// primary is back: how long that is stands in the secondary ([`FailbackWindow`]), and every node reads it each second.
#[derive(Debug)]
pub struct Failover<P, S>(Arc<Inner<P, S>>);

#[derive(Debug)]
struct Inner<P, S> {
    primary: Arc<Observed<P>>,
    secondary: Arc<Observed<Arc<S>>>,
    epoch: Arc<S>,
    primary_circuit: Arc<CircuitBreaker>,
    secondary_circuit: Arc<CircuitBreaker>,
    window: LocalWindow,
    homes: Arc<Homes>,
    unprotected: Counts,
    feed: ChangeFeed,
    tasks: TaskTracker,
    /// Brings the news of both.
    _relay: Arc<FeedRelay>,
}

#[derive(Debug, Default)]
struct Counts {
    primary_unreachable: AtomicU64,
    secondary_unasked: AtomicU64,
}

/// What a [`Failover`] could not protect since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnprotectedKeys {
    /// Keys that were granted by the secondary while nobody knew what the primary had.
    pub primary_unreachable: u64,
    /// Keys that were granted by the primary although the secondary, which may have had them, did not answer.
    pub secondary_unasked: u64,
}

impl<P: Store, S: Store + FailbackWindow> Failover<P, S> {
    /// Sets up a failover.
    pub const fn builder(primary: P, secondary: S) -> FailoverBuilder<P, S> {
        FailoverBuilder::new(primary, secondary)
    }

    /// What it could not protect.
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
        let news = [primary.info().change_feed, secondary.info().change_feed];
        news.iter().flatten().for_each(|news| relay.forward(news));
        let epoch = Arc::new(secondary);
        let primary = Arc::new(Observed::new(primary));
        let secondary = Arc::new(Observed::new(epoch.clone()));
        let inner = Arc::new(Inner {
            primary_circuit: CircuitBreaker::for_store(primary.clone()),
            secondary_circuit: CircuitBreaker::for_store(secondary.clone()),
            primary,
            secondary,
            epoch,
            window: LocalWindow::default(),
            homes: Arc::new(Homes::new()),
            unprotected: Counts::default(),
            feed,
            tasks: TaskTracker::new(),
            _relay: relay,
        });
        background::handle().spawn(reading(Arc::downgrade(&inner)));
        Self(inner)
    }
}

/// Reads the epoch for as long as the store lives.
async fn reading<P: Store, S: Store + FailbackWindow>(inner: Weak<Inner<P, S>>) {
    while let Some(inner) = inner.upgrade() {
        inner.read_epoch().await;
        drop(inner);
        sleep(READ_EVERY).await;
    }
}
