//! A front in memory, for tests.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{Replica, ReplicaCache};
use crate::{
    ChangeFeed, Clock, Error, ErrorKind, FeedConnection, KeyHash, Result, SystemClock, Timestamp,
    sync::Mutex,
};

/// Copies and marks at most.
const AT_MOST: usize = 100_000;

/// A [`ReplicaCache`] in memory, for tests: a front that is no further away than the store behind it saves nothing.
/// Clones share what they hold, as nodes share a server.
#[derive(Clone, Debug)]
pub struct MemoryReplicaCache {
    clock: Arc<dyn Clock>,
    /// Time passes for a call as it does for this machine. A clock of a test stands still meanwhile.
    is_real_time: bool,
    feed: ChangeFeed,
    /// Nothing happens to it that it does not tell.
    _connected: Arc<FeedConnection>,
    places: Arc<Mutex<HashMap<KeyHash, Place>>>,
}

#[derive(Debug)]
struct Place {
    /// `None`: a mark.
    copy: Option<Replica>,
    until: Timestamp,
}

impl MemoryReplicaCache {
    /// Empty, on the clock of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self { is_real_time: true, ..Self::with_clock(SystemClock::new()) }
    }

    /// Empty, on this clock.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        let feed = ChangeFeed::new();
        let _connected = Arc::new(feed.connected());
        let (clock, places) = (Arc::new(clock), Arc::default());
        Self { clock, is_real_time: false, feed, _connected, places }
    }

    fn find(&self, key: &KeyHash) -> Option<Replica> {
        let now = self.clock.now();
        let places = self.places.lock();
        let place = places.get(key).filter(|place| place.until > now)?;
        let copy = place.copy.clone()?;
        Some(Replica { remaining: place.until.since(now), ..copy })
    }

    fn keep(&self, copy: &Replica, asked: Instant) -> Result<()> {
        if asked.elapsed() > Replica::LATEST {
            return Ok(());
        }
        let now = self.clock.now();
        let mut places = self.places.lock();
        if places.len() >= AT_MOST {
            places.retain(|_, place| place.until > now);
        }
        if places.get(&copy.record.key).is_some_and(|place| place.until > now) {
            return Ok(());
        }
        if places.len() >= AT_MOST {
            return Err(Error::new(ErrorKind::Full, "the front in memory is full"));
        }
        let late = if self.is_real_time { asked.elapsed() } else { Duration::ZERO };
        let until = now.after(copy.remaining.saturating_sub(late));
        places.insert(copy.record.key, Place { copy: Some(copy.clone()), until });
        Ok(())
    }

    fn mark(&self, key: &KeyHash, length: Duration) -> bool {
        let now = self.clock.now();
        let mark = Place { copy: None, until: now.after(length) };
        let was = self.places.lock().insert(*key, mark);
        was.is_some_and(|place| place.copy.is_some() && place.until > now)
    }
}

impl Default for MemoryReplicaCache {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ReplicaCache for MemoryReplicaCache {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn change_feed(&self) -> Option<ChangeFeed> {
        Some(self.feed.clone())
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        keys.iter().map(|key| Ok(self.find(key))).collect()
    }

    async fn put(&self, copies: &[Replica], asked: Instant) -> Vec<Result<()>> {
        copies.iter().map(|copy| self.keep(copy, asked)).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let removed = self.mark(key, Replica::MARK);
        self.feed.notify(key);
        Ok(removed)
    }
}
