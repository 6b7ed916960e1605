//! A replica cache in memory, for tests.

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

/// The most replicas and marks.
const CAPACITY: usize = 100_000;

/// A [`ReplicaCache`] in memory, for tests: a front saves nothing if it is as near as the authority. Clones share their
/// content, as nodes share a server.
#[derive(Clone, Debug)]
pub struct MemoryReplicaCache {
    clock: Arc<dyn Clock>,
    /// True with the clock of this machine. The clock of a test stands still during a call.
    is_real_time: bool,
    feed: ChangeFeed,
    /// Every change is notified.
    _connected: Arc<FeedConnection>,
    slots: Arc<Mutex<HashMap<KeyHash, ReplicaSlot>>>,
}

#[derive(Debug)]
struct ReplicaSlot {
    /// `None` for the mark of a removal.
    replica: Option<Replica>,
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
        let (clock, slots) = (Arc::new(clock), Arc::default());
        Self { clock, is_real_time: false, feed, _connected, slots }
    }

    fn get(&self, key: &KeyHash) -> Option<Replica> {
        let now = self.clock.now();
        let slots = self.slots.lock();
        let slot = slots.get(key).filter(|slot| slot.until > now)?;
        let replica = slot.replica.clone()?;
        Some(Replica { remaining: slot.until.since(now), ..replica })
    }

    fn insert(&self, replica: &Replica, called_at: Instant) -> Result<()> {
        if called_at.elapsed() > Replica::LATEST {
            return Ok(());
        }
        let now = self.clock.now();
        let mut slots = self.slots.lock();
        if slots.len() >= CAPACITY {
            slots.retain(|_, slot| slot.until > now);
        }
        if slots.get(&replica.record.key).is_some_and(|slot| slot.until > now) {
            return Ok(());
        }
        if slots.len() >= CAPACITY {
            return Err(Error::new(ErrorKind::Full, "the front in memory is full"));
        }
        let elapsed = if self.is_real_time { called_at.elapsed() } else { Duration::ZERO };
        let until = now.after(replica.remaining.saturating_sub(elapsed));
        slots.insert(replica.record.key, ReplicaSlot { replica: Some(replica.clone()), until });
        Ok(())
    }

    fn mark(&self, key: &KeyHash, length: Duration) -> bool {
        let now = self.clock.now();
        let mark = ReplicaSlot { replica: None, until: now.after(length) };
        let before = self.slots.lock().insert(*key, mark);
        before.is_some_and(|slot| slot.replica.is_some() && slot.until > now)
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
        keys.iter().map(|key| Ok(self.get(key))).collect()
    }

    async fn put(&self, replicas: &[Replica], called_at: Instant) -> Vec<Result<()>> {
        replicas.iter().map(|replica| self.insert(replica, called_at)).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let removed = self.mark(key, Replica::MARK);
        self.feed.notify(key);
        Ok(removed)
    }
}
