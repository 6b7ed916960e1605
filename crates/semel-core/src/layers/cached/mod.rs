//! A cache in front of a store: replays are answered from memory.

#![deny(clippy::missing_trait_methods)]

mod builder;
mod cache;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::CachedBuilder;
use self::cache::{Found, OutcomeCache};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Clock, CompleteRequest, Completion, Erasure,
    Forgetting, KeyHash, ListQuery, Observed, Purged, Record, Release, ReleaseRequest,
    RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats, Store, StoreInfo,
};

/// A store with a cache in front: replays are answered from memory.
///
/// It holds outcomes that are recorded, and nothing else: never that a key is absent, never that it is
/// owned. So it can save a trip, but decides nothing. What is used least recently leaves first: the newest
/// ids are the ones about to be redelivered.
///
/// An entry ends with its record, and after [`CachedBuilder::ttl`] at the latest. Until then it may show
/// what an operator has forgotten or erased in another process, unless the store brings the news
/// ([`ChangeFeed`](crate::ChangeFeed)).
///
/// ```
/// use semel_core::{Cached, Engine, MemoryStore};
/// let engine = Engine::builder().store(Cached::new(MemoryStore::new(), 100_000)).build()?;
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Cached<S> {
    store: Observed<S>,
    shards: Arc<OutcomeCache>,
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

    /// Outcomes it holds, outdated ones included.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.shards.len()
    }

    fn find(&self, request: &ClaimRequest) -> Found {
        self.shards.find(&request.key, &request.fingerprint, self.clock.now())
    }

    /// Keeps what a claim was answered with, unless the key changed since it was looked for.
    fn keep(&self, request: &ClaimRequest, missed: cache::Missed, answer: &Result<Claim>) {
        if let Ok(Claim::Replay(replay)) = answer {
            self.shards.put(&request.key, &request.fingerprint, replay, missed);
        }
    }

    /// Drops a key before a step that may change it, and once more after: a claim under way may have
    /// seen what was there before.
    async fn change<T>(&self, key: &KeyHash, step: impl Future<Output = T>) -> T {
        self.shards.drop_key(key);
        let answer = step.await;
        self.shards.drop_key(key);
        answer
    }
}

#[async_trait]
impl<S: Store> Store for Cached<S> {
    fn info(&self) -> StoreInfo {
        StoreInfo { name: "cached", ..self.store.info() }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let missed = match self.find(request) {
            Found::Hit(replay) => return Ok(Claim::Replay(replay)),
            Found::Miss(missed) => missed,
        };
        let answer = self.store.claim(request).await;
        self.keep(request, missed, &answer);
        answer
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let found: Vec<Found> = requests.iter().map(|request| self.find(request)).collect();
        let is_missed = |found: &Found| matches!(found, Found::Miss(_));
        let missed = requests.iter().zip(&found).filter(|(_, found)| is_missed(found));
        let asked: Vec<ClaimRequest> = missed.map(|(request, _)| request.clone()).collect();
        let answers =
            if asked.is_empty() { Vec::new() } else { self.store.claim_many(&asked).await };
        let mut answers = answers.into_iter();
        let answer = |(request, found)| match found {
            Found::Hit(replay) => Some(Ok(Claim::Replay(replay))),
            Found::Miss(missed) => {
                let answer = answers.next()?;
                self.keep(request, missed, &answer);
                Some(answer)
            }
        };
        requests.iter().zip(found).filter_map(answer).collect()
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.change(&request.key, self.store.resolve(request)).await
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.change(key, self.store.erase(key)).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.change(key, self.store.forget(key)).await
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
