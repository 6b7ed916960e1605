//! The cached outcomes: a few shards, each with a lock, its order of use and its share of the capacity.

use std::sync::Arc;

use lru::LruCache;

use crate::{
    Body, ChangeFeed, Fingerprint, KeyHash, Outcome, Replay, Span, Timestamp, sync::Mutex,
};

/// Enough that threads seldom wait for each other. A small cache has one shard, so that its order of use is exact.
const SHARDS: usize = 16;
const SMALL: usize = 1024;

/// About how many bytes an entry takes up besides its outcome.
pub(super) const ENTRY_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) ttl: Span,
}

#[derive(Debug)]
pub(super) struct OutcomeCache {
    shards: Vec<Mutex<CacheShard>>,
    /// For each shard.
    limits: CacheLimits,
    /// Reports changed keys, if the store has a change feed.
    feed: Option<ChangeFeed>,
}

#[derive(Debug)]
struct CacheShard {
    entries: LruCache<KeyHash, CachedOutcome>,
    bytes: usize,
    /// How often a key of this shard was invalidated: a lookup from before must not insert its result.
    invalidations: u64,
}

#[derive(Debug)]
struct CachedOutcome {
    fingerprint: Fingerprint,
    outcome: Arc<Outcome>,
    attempt: u32,
    recorded_at: Timestamp,
    expires_at: Timestamp,
    /// The end of this entry, `expires_at` at the latest.
    until: Timestamp,
}

/// The result of a lookup.
pub(super) enum Lookup {
    Hit(Replay),
    Miss(CacheMiss),
}

/// The state of the shard at a miss, to which a later insert is compared.
#[derive(Clone, Copy)]
pub(super) struct CacheMiss {
    at: Timestamp,
    invalidations: u64,
}

impl OutcomeCache {
    pub(super) fn new(limits: CacheLimits, feed: Option<ChangeFeed>) -> Self {
        let count = if limits.entries <= SMALL { 1 } else { SHARDS };
        let shard = || CacheShard { entries: LruCache::unbounded(), bytes: 0, invalidations: 0 };
        let share = CacheLimits {
            entries: limits.entries.div_ceil(count),
            bytes: limits.bytes.div_ceil(count),
            ..limits
        };
        let shards = (0..count).map(|_| Mutex::new(shard())).collect();
        Self { shards, limits: share, feed }
    }

    pub(super) fn get(&self, key: &KeyHash, fingerprint: &Fingerprint, now: Timestamp) -> Lookup {
        let mut shard = self.shard(key).lock();
        match shard.entries.get(key) {
            Some(entry) if entry.until <= now => shard.remove(key),
            // A request with another fingerprint goes to the store, which has the recorded one.
            Some(entry) if entry.fingerprint == *fingerprint => {
                return Lookup::Hit(entry.replay(now));
            }
            Some(_) | None => {}
        }
        Lookup::Miss(CacheMiss { at: now, invalidations: shard.invalidations })
    }

    /// Inserts the store's replay after a miss, unless the shard was invalidated since.
    pub(super) fn insert(
        &self,
        key: &KeyHash,
        fingerprint: &Fingerprint,
        replay: &Replay,
        miss: CacheMiss,
    ) {
        let entry = self.entry(fingerprint, replay, miss.at);
        if entry.size() > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        let mut shard = self.shard(key).lock();
        if shard.invalidations != miss.invalidations {
            return;
        }
        shard.remove(key);
        shard.bytes += entry.size();
        shard.entries.put(*key, entry);
        shard.shrink(&self.limits);
    }

    pub(super) fn invalidate(&self, key: &KeyHash) {
        let mut shard = self.shard(key).lock();
        shard.invalidations += 1;
        shard.remove(key);
    }

    pub(super) fn invalidate_all(&self) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Times count from the miss, which was before the store's reply: no entry outlives its record.
    fn entry(&self, fingerprint: &Fingerprint, replay: &Replay, at: Timestamp) -> CachedOutcome {
        let expires_at = at.after(replay.remaining);
        let until = match is_empty(&replay.outcome) && self.is_feed_connected() {
            true => expires_at,
            false => expires_at.min(at.after(self.limits.ttl)),
        };
        CachedOutcome {
            fingerprint: *fingerprint,
            outcome: replay.outcome.clone(),
            attempt: replay.attempt,
            recorded_at: at.before(replay.age),
            expires_at,
            until,
        }
    }

    /// When the connection ends, all entries are invalidated.
    fn is_feed_connected(&self) -> bool {
        self.feed.as_ref().is_some_and(ChangeFeed::is_connected)
    }

    fn shard(&self, key: &KeyHash) -> &Mutex<CacheShard> {
        &self.shards[usize::from(key.as_bytes()[1]) % self.shards.len()]
    }
}

impl CacheShard {
    fn remove(&mut self, key: &KeyHash) {
        if let Some(entry) = self.entries.pop(key) {
            self.bytes -= entry.size();
        }
    }

    fn shrink(&mut self, limits: &CacheLimits) {
        while self.entries.len() > limits.entries || self.bytes > limits.bytes {
            let Some((_, entry)) = self.entries.pop_lru() else { return };
            self.bytes -= entry.size();
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.invalidations += 1;
    }
}

impl CachedOutcome {
    fn replay(&self, now: Timestamp) -> Replay {
        Replay {
            outcome: self.outcome.clone(),
            attempt: self.attempt,
            age: now.since(self.recorded_at),
            remaining: self.expires_at.since(now),
            cached: true,
        }
    }

    fn size(&self) -> usize {
        ENTRY_BYTES + self.outcome.size()
    }
}

/// True when the outcome says only that the work was done.
fn is_empty(outcome: &Outcome) -> bool {
    let has_no_body = matches!(outcome.body(), Body::Kept(bytes) if bytes.is_empty());
    outcome.is_success() && outcome.head().is_none() && has_no_body
}
