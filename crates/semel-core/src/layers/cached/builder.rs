//! Sets up a cache.

use std::{sync::Arc, time::Duration};

use super::{
    Cached,
    cache::{ENTRY_BYTES, Limits, OutcomeCache},
};
use crate::{ChangeObserver, Clock, Observed, Store, SystemClock};

/// Builds a [`Cached`] store.
#[derive(Debug)]
#[must_use]
pub struct CachedBuilder<S> {
    store: S,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

impl<S: Store> CachedBuilder<S> {
    /// Outcomes held unless set otherwise.
    pub const ENTRIES: usize = 100_000;
    /// Bytes they may take up.
    pub const BYTES: usize = 64 * 1024 * 1024;
    /// Of these an entry takes up so many, about, besides its outcome.
    pub const ENTRY_BYTES: usize = ENTRY_BYTES;
    /// How long an entry lives at most.
    pub const TTL: Duration = Duration::from_secs(60);

    pub(super) fn new(store: S) -> Self {
        let limits = Limits { entries: Self::ENTRIES, bytes: Self::BYTES, ttl: Self::TTL.into() };
        Self { store, limits, clock: Arc::new(SystemClock::new()) }
    }

    /// At most so many outcomes. None: nothing is cached.
    pub fn entries(mut self, entries: usize) -> Self {
        self.limits.entries = entries;
        self
    }

    /// Their bytes in all, near enough.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// How long an entry lives at most: as long may pass until this process sees that another one forgot
    /// or erased a key, if the store brings no news. While it does, an outcome without anything in it
    /// lives as long as its record.
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
        let shards = Arc::new(OutcomeCache::new(self.limits, feed.clone()));
        if let Some(feed) = feed {
            let shards: Arc<dyn ChangeObserver> = shards.clone();
            feed.subscribe_all(Arc::downgrade(&shards));
        }
        Cached { store: Observed::new(self.store), shards, clock: self.clock }
    }
}
