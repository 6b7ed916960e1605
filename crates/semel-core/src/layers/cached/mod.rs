//! The cached layer: answers replays from the memory of this process.

#![deny(clippy::missing_trait_methods)]

mod builder;
mod cache;
mod invalidation;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::CachedBuilder;
use self::cache::{CacheMiss, Lookup, OutcomeCache};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Clock, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Observed, Purged, Record, Release, ReleaseRequest,
    RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
};

/// A store with a cache in front: replays are answered from memory.
///
/// It holds recorded outcomes only: never that a key is free, never that it is owned. So it can save a round trip, but
/// decides nothing. When it is full, the least recently used outcome is removed: the newest keys are the ones most
/// likely to be redelivered.
///
/// An entry ends with its record, and after [`CachedBuilder::ttl`] at the latest. Until then it may replay
/// an outcome that an operator has forgotten or erased in another process, unless the store has a
/// [`ChangeFeed`](crate::ChangeFeed), which invalidates the entry.
///
/// ```
/// use semel_core::{Cached, Engine, MemoryStore};
/// let engine = Engine::builder().store(Cached::new(MemoryStore::new(), 100_000)).build()?;
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Cached<S> {
    store: Observed<S>,
    cache: Arc<OutcomeCache>,
    clock: Arc<dyn Clock>,
}

impl<S: Store> Cached<S> {
    /// At most `entries` outcomes of `store`, for a minute each.
    pub fn new(store: S, entries: usize) -> Self {
        Self::builder(store).entries(entries).build()
    }

    /// Sets up a cache.
    pub fn builder(store: S) -> CachedBuilder<S> {
        CachedBuilder::new(store)
    }

    /// The number of outcomes in the cache, including outdated ones.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.cache.len()
    }

    fn get_cached(&self, request: &ClaimRequest) -> Lookup {
        self.cache.get(&request.key, &request.fingerprint, self.clock.now())
    }

    /// Caches a replay, unless the key was invalidated since the miss.
    fn insert(&self, request: &ClaimRequest, miss: CacheMiss, reply: &Result<Claim>) {
        if let Ok(Claim::Replay(replay)) = reply {
            self.cache.insert(&request.key, &request.fingerprint, replay, miss);
        }
    }
}

#[async_trait]
impl<S: Store> Store for Cached<S> {
    fn info(&self) -> StoreInfo {
        StoreInfo { name: "cached", ..self.store.info() }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let miss = match self.get_cached(request) {
            Lookup::Hit(replay) => return Ok(Claim::Replay(replay)),
            Lookup::Miss(miss) => miss,
        };
        let reply = self.store.claim(request).await;
        self.insert(request, miss, &reply);
        reply
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let lookups: Vec<Lookup> =
            requests.iter().map(|request| self.get_cached(request)).collect();
        let is_miss = |lookup: &Lookup| matches!(lookup, Lookup::Miss(_));
        let misses = requests.iter().zip(&lookups).filter(|(_, lookup)| is_miss(lookup));
        let misses: Vec<ClaimRequest> = misses.map(|(request, _)| request.clone()).collect();
        let replies =
            if misses.is_empty() { Vec::new() } else { self.store.claim_many(&misses).await };
        let mut replies = replies.into_iter();
        let reply = |(request, lookup)| match lookup {
            Lookup::Hit(replay) => Some(Ok(Claim::Replay(replay))),
            Lookup::Miss(miss) => {
                let reply = replies.next()?;
                self.insert(request, miss, &reply);
                Some(reply)
            }
        };
        requests.iter().zip(lookups).filter_map(reply).collect()
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.invalidate_around(&request.key, self.store.resolve(request)).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.invalidate_around(key, self.store.erase(key)).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.invalidate_around(key, self.store.forget(key)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.store.renew(request).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        self.store.complete(request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.store.release(request).await
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        self.store.abandon(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        self.store.renew_many(requests).await
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        self.store.complete_many(requests).await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        self.store.release_many(requests).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        self.store.purge(limit).await
    }

    async fn lead(&self, term: Duration) -> Result<bool> {
        self.store.lead(term).await
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        self.store.get(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        self.store.list(query).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}
