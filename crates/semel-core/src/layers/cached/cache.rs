//! Where cached outcomes stand: a few shards, each with a lock, an order of use and its share of the room.

use std::sync::Arc;

use lru::LruCache;

use crate::{
    Body, ChangeFeed, ChangeObserver, Fingerprint, KeyHash, Outcome, Replay, Span, Timestamp,
    sync::Mutex,
};

/// Enough that threads seldom meet; a small cache has one, so that its order is exact.
const SHELVES: usize = 16;
const SMALL: usize = 1024;

/// Bytes an entry takes up besides its outcome, about.
pub(super) const ENTRY_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) ttl: Span,
}

#[derive(Debug)]
pub(super) struct OutcomeCache {
    shards: Vec<Mutex<CacheShard>>,
    /// For each shard.
    limits: Limits,
    /// Tell when a key changes, if the store hears of it.
    feed: Option<ChangeFeed>,
}

#[derive(Debug)]
struct CacheShard {
    entries: LruCache<KeyHash, Entry>,
    bytes: usize,
    /// How often a key of this shard was dropped: whoever looked before must not put.
    drops: u64,
}

#[derive(Debug)]
struct Entry {
    fingerprint: Fingerprint,
    outcome: Arc<Outcome>,
    attempt: u32,
    recorded_at: Timestamp,
    expires_at: Timestamp,
    until: Timestamp,
}

/// What a search came to.
pub(super) enum Found {
    Hit(Replay),
    Miss(Missed),
}

/// When something was looked for in vain.
#[derive(Clone, Copy)]
pub(super) struct Missed {
    at: Timestamp,
    drops: u64,
}

impl OutcomeCache {
    pub(super) fn new(limits: Limits, feed: Option<ChangeFeed>) -> Self {
        let count = if limits.entries <= SMALL { 1 } else { SHELVES };
        let shard = || CacheShard { entries: LruCache::unbounded(), bytes: 0, drops: 0 };
        let share = Limits {
            entries: limits.entries.div_ceil(count),
            bytes: limits.bytes.div_ceil(count),
            ..limits
        };
        let shards = (0..count).map(|_| Mutex::new(shard())).collect();
        Self { shards, limits: share, feed }
    }

    pub(super) fn find(&self, key: &KeyHash, asked: &Fingerprint, now: Timestamp) -> Found {
        let mut shard = self.shard(key).lock();
        match shard.entries.get(key) {
            Some(entry) if entry.until <= now => shard.take(key),
            // Something else is asked: the store knows what is pinned.
            Some(entry) if entry.fingerprint == *asked => return Found::Hit(entry.replay(now)),
            Some(_) | None => {}
        }
        Found::Miss(Missed { at: now, drops: shard.drops })
    }

    /// Puts what the store answered to somebody who had missed it here.
    pub(super) fn put(&self, key: &KeyHash, asked: &Fingerprint, replay: &Replay, missed: Missed) {
        let entry = self.entry(asked, replay, missed.at);
        if entry.size() > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        let mut shard = self.shard(key).lock();
        if shard.drops != missed.drops {
            return;
        }
        shard.take(key);
        shard.bytes += entry.size();
        shard.entries.put(*key, entry);
        shard.shrink(&self.limits);
    }

    pub(super) fn drop_key(&self, key: &KeyHash) {
        let mut shard = self.shard(key).lock();
        shard.drops += 1;
        shard.take(key);
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Times count from when the store was asked: no entry outlives its record.
    fn entry(&self, asked: &Fingerprint, replay: &Replay, at: Timestamp) -> Entry {
        let expires_at = at.after(replay.remaining);
        let until = match says_nothing(&replay.outcome) && self.hears_news() {
            true => expires_at,
            false => expires_at.min(at.after(self.limits.ttl)),
        };
        Entry {
            fingerprint: *asked,
            outcome: replay.outcome.clone(),
            attempt: replay.attempt,
            recorded_at: at.before(replay.age),
            expires_at,
            until,
        }
    }

    /// When that ends, all entries are dropped.
    fn hears_news(&self) -> bool {
        self.feed.as_ref().is_some_and(ChangeFeed::is_connected)
    }

    fn shard(&self, key: &KeyHash) -> &Mutex<CacheShard> {
        &self.shards[usize::from(key.as_bytes()[1]) % self.shards.len()]
    }
}

impl ChangeObserver for OutcomeCache {
    fn changed(&self, key: Option<&KeyHash>) {
        match key {
            Some(key) => self.drop_key(key),
            None => self.shards.iter().for_each(|shard| shard.lock().clear()),
        }
    }
}

impl CacheShard {
    fn take(&mut self, key: &KeyHash) {
        if let Some(entry) = self.entries.pop(key) {
            self.bytes -= entry.size();
        }
    }

    fn shrink(&mut self, limits: &Limits) {
        while self.entries.len() > limits.entries || self.bytes > limits.bytes {
            let Some((_, entry)) = self.entries.pop_lru() else { return };
            self.bytes -= entry.size();
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.drops += 1;
    }
}

impl Entry {
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

/// Only says that the work was done.
fn says_nothing(outcome: &Outcome) -> bool {
    let is_empty = matches!(outcome.body(), Body::Kept(bytes) if bytes.is_empty());
    outcome.is_success() && outcome.head().is_none() && is_empty
}
