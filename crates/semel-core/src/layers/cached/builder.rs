//! Builds a cached layer.

use std::{sync::Arc, time::Duration};

use super::{
    Cached,
    cache::{CacheLimits, ENTRY_BYTES, OutcomeCache},
};
use crate::{ChangeObserver, Clock, Observed, Store, SystemClock};

/// Builds a [`Cached`] store.
#[derive(Debug)]
#[must_use]
pub struct CachedBuilder<S> {
    store: S,
    limits: CacheLimits,
    clock: Arc<dyn Clock>,
}

impl<S: Store> CachedBuilder<S> {
    /// Outcomes held unless set otherwise.
    pub const ENTRIES: usize = 100_000;
    /// The bytes that all outcomes may take up unless set otherwise.
    pub const BYTES: usize = 64 * 1024 * 1024;
    /// About how many of these bytes an entry takes up besides its outcome.
    pub const ENTRY_BYTES: usize = ENTRY_BYTES;
    /// How long an entry lives at most, unless set otherwise.
    pub const TTL: Duration = Duration::from_secs(60);

    pub(super) fn new(store: S) -> Self {
        let limits =
            CacheLimits { entries: Self::ENTRIES, bytes: Self::BYTES, ttl: Self::TTL.into() };
        Self { store, limits, clock: Arc::new(SystemClock::new()) }
    }

    /// The most outcomes that are cached. With 0 nothing is cached.
    pub fn entries(mut self, entries: usize) -> Self {
        self.limits.entries = entries;
        self
    }

    /// The bytes that all outcomes may take up, approximately.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// How long an entry lives at most. After this time at the latest this process sees that another one forgot or
    /// erased a key, if the store has no change feed. While a change feed is connected, an empty outcome lives as
    /// long as its record.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.limits.ttl = ttl.into();
        self
    }

    /// Ages entries by this clock, for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the cache.
    pub fn build(self) -> Cached<S> {
        let feed = self.store.info().change_feed;
        let cache = Arc::new(OutcomeCache::new(self.limits, feed.clone()));
        if let Some(feed) = feed {
            let observer: Arc<dyn ChangeObserver> = cache.clone();
            feed.subscribe_all(Arc::downgrade(&observer));
        }
        Cached { store: Observed::new(self.store), cache, clock: self.clock }
    }
}
