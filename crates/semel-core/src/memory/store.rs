//! `impl Store` for the memory store: finds the shard, takes its lock, runs the step.

use std::{fmt, hash::BuildHasher, sync::Arc, time::Duration};

use async_trait::async_trait;
use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::{
    MemoryStoreBuilder, WhenFull,
    budget::MemoryBudget,
    shard::{OversizedOutcome, RecordShard, StoreFull},
};
use crate::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, Clock, CompleteRequest, Completion,
    Durability, Erasure, Error, ErrorKind, Forgetting, KeyHash, ListQuery, Policy, Purged, Record,
    Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting,
    Stats, Store, StoreInfo, Timestamp,
    steps::{self, Step},
};

/// Shards are chosen by the first bits of the key's hash, so that their order is the keys' order.
const SHARDS: usize = 128;

/// Records deleted under one hold of a shard's lock.
const PURGE_CHUNK: usize = 32;

/// The most records that are deleted or evicted for one new record.
const MAX_EVICTIONS: usize = 256;

/// Keeps records in memory. Clones share one store.
///
/// ```
/// use semel_core::{ManualClock, MemoryStore};
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().max_entries(10_000).clock(clock.clone()).build()?;
/// # let _ = store;
/// # Ok::<(), semel_core::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<MemoryInner>);

struct MemoryInner {
    shards: Box<[Mutex<RecordShard>]>,
    hasher: DefaultHashBuilder,
    budget: MemoryBudget,
    when_full: WhenFull,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// A store with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::from_config(Self::builder())
    }

    /// Sets bounds and clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// Bytes of all records now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let unused = self.0.shards.iter().map(|shard| shard.lock().budget().bytes()).sum();
        self.0.budget.used_bytes(unused)
    }

    /// The number of records now, including expired ones.
    pub(super) fn entries(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().queued()).sum()
    }

    pub(super) fn from_config(config: MemoryStoreBuilder) -> Self {
        Self(Arc::new(MemoryInner {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            budget: MemoryBudget::new(config.max_entries, config.max_bytes, SHARDS),
            when_full: config.when_full,
            clock: config.clock,
        }))
    }

    /// Runs one step. A full store deletes or evicts what it can before it refuses the step.
    fn step<A>(
        &self,
        key: &KeyHash,
        step: impl Fn(Option<&Record>, Timestamp) -> Step<A>,
    ) -> Result<A> {
        if let Ok(answer) = self.try_step(key, OversizedOutcome::Refuse, &step) {
            return Ok(answer);
        }
        self.purge_now(MAX_EVICTIONS);
        self.collect_unused_budget();
        for _ in 0..MAX_EVICTIONS {
            if let Ok(answer) = self.try_step(key, OversizedOutcome::Refuse, &step) {
                return Ok(answer);
            }
            if self.0.when_full == WhenFull::Refuse || !self.evict_one() {
                break;
            }
        }
        self.try_step(key, OversizedOutcome::Omit, &step).map_err(|StoreFull| {
            Error::new(
                ErrorKind::Full,
                "memory store: full of records that have not expired; raise max_entries or \
                 max_bytes, or shorten the retention",
            )
        })
    }

    fn try_step<A>(
        &self,
        key: &KeyHash,
        oversized: OversizedOutcome,
        step: impl Fn(Option<&Record>, Timestamp) -> Step<A>,
    ) -> Result<A, StoreFull> {
        let inner = &*self.0;
        let hash = inner.hasher.hash_one(key);
        let mut shard = inner.shards[shard_of(key)].lock();
        // Read under the lock, so that steps on one key see times in the order in which they happen.
        let now = inner.clock.now();
        shard.step(hash, key, (&inner.budget, oversized), |record| step(record, now))
    }

    fn evict_one(&self) -> bool {
        let inner = &*self.0;
        let shards = inner.shards.iter().cycle().skip(rand::random_range(0..SHARDS)).take(SHARDS);
        let evicted = shards.into_iter().any(|shard| shard.lock().evict(&inner.budget));
        self.collect_unused_budget();
        evicted
    }

    /// Returns the unused budget of every shard, so that any shard can use it.
    fn collect_unused_budget(&self) {
        self.0.shards.iter().for_each(|shard| shard.lock().budget().return_all(&self.0.budget));
    }

    /// Purges a few records of each shard, round after round, so that no lock is held for long.
    fn purge_now(&self, limit: usize) -> Purged {
        let inner = &*self.0;
        let now = inner.clock.now();
        let mut total = Purged::default();
        let mut more = true;
        while more && total.count() < limit {
            more = false;
            for shard in &inner.shards {
                let chunk = PURGE_CHUNK.min(limit - total.count());
                let (purged, more_here) = shard.lock().purge(now, chunk, &inner.budget);
                total.deleted += purged.deleted;
                total.held += purged.held;
                more |= more_here;
            }
        }
        total
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("entries", &self.entries())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            name: "memory",
            durability: Durability::Process,
            max_outcome_bytes: Policy::MAX_OUTCOME_LIMIT,
            hash_secret: None,
            change_feed: None,
            shared: false,
            identity: None,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.step(&request.key, |record, now| steps::claim(record, request, now))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        self.step(&request.owner.key, |record, now| steps::renew(record, request, now))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        self.step(&request.owner.key, |record, now| steps::complete(record, request, now))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        self.step(&request.owner.key, |record, now| steps::release(record, request, now))
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        self.step(&request.owner.key, |record, now| steps::abandon(record, request, now))
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        let claim = |request: &ClaimRequest| {
            self.step(&request.key, |record, now| steps::claim(record, request, now))
        };
        requests.iter().map(claim).collect()
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        let renew = |request: &RenewRequest| {
            self.step(&request.owner.key, |record, now| steps::renew(record, request, now))
        };
        requests.iter().map(renew).collect()
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        let complete = |request: &CompleteRequest| {
            self.step(&request.owner.key, |record, now| steps::complete(record, request, now))
        };
        requests.iter().map(complete).collect()
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        let release = |request: &ReleaseRequest| {
            self.step(&request.owner.key, |record, now| steps::release(record, request, now))
        };
        requests.iter().map(release).collect()
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        self.step(&request.key, |record, now| steps::resolve(record, request, now))
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.step(key, steps::erase)
    }

    async fn purge(&self, limit: usize) -> Result<Purged> {
        Ok(self.purge_now(limit))
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        self.step(key, steps::forget)
    }

    async fn lead(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        let inner = &*self.0;
        let shard = inner.shards[shard_of(key)].lock();
        let at = inner.clock.now();
        let record = shard.get(inner.hasher.hash_one(key), key).filter(|r| !r.is_expired(at));
        Ok(record.map(|record| Sighting { record: record.clone(), at }))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let inner = &*self.0;
        let first = query.after.as_ref().map_or(0, shard_of);
        let mut page = Vec::new();
        for shard in &inner.shards[first..] {
            if page.len() >= query.limit {
                break;
            }
            let now = inner.clock.now();
            let wanted = |record: &&Record| {
                !record.is_expired(now)
                    && query.after.is_none_or(|after| record.key > after)
                    && query.matches(record)
            };
            let mut found: Vec<Record> = shard.lock().records().filter(wanted).cloned().collect();
            found.sort_unstable_by_key(|record| record.key);
            page.append(&mut found);
        }
        page.truncate(query.limit);
        Ok(page)
    }

    async fn stats(&self) -> Result<Stats> {
        let mut stats = Stats { records: self.entries() as u64, ..Stats::default() };
        for shard in &self.0.shards {
            let counts = shard.lock().state_counts();
            stats.unknown += counts.unknown;
            stats.dead += counts.dead;
        }
        Ok(stats)
    }
}

fn shard_of(key: &KeyHash) -> usize {
    usize::from(key.as_bytes()[0]) * SHARDS / 256
}
