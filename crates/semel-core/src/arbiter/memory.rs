//! A front in memory, for tests.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{Shelf, Shelved};
use crate::{
    Clock, Error, ErrorKind, Hearing, Hints, KeyHash, Result, SystemClock, Timestamp, sync::Mutex,
};

/// Copies and marks at most.
const AT_MOST: usize = 100_000;

/// A [`Shelf`] in memory, for tests: a front that is no further away than the store behind it saves nothing.
/// Clones share what they hold, as nodes share a server.
#[derive(Clone, Debug)]
pub struct MemoryShelf {
    clock: Arc<dyn Clock>,
    /// Time passes for a call as it does for this machine. A clock of a test stands still meanwhile.
    is_real_time: bool,
    hints: Hints,
    /// Nothing happens to it that it does not tell.
    _hearing: Arc<Hearing>,
    places: Arc<Mutex<HashMap<KeyHash, Place>>>,
}

#[derive(Debug)]
struct Place {
    /// `None`: a mark.
    copy: Option<Shelved>,
    until: Timestamp,
}

impl MemoryShelf {
    /// Empty, on the clock of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self { is_real_time: true, ..Self::with_clock(SystemClock::new()) }
    }

    /// Empty, on this clock.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        let hints = Hints::new();
        let _hearing = Arc::new(hints.hear());
        let (clock, places) = (Arc::new(clock), Arc::default());
        Self { clock, is_real_time: false, hints, _hearing, places }
    }

    fn find(&self, key: &KeyHash) -> Option<Shelved> {
        let now = self.clock.now();
        let places = self.places.lock();
        let place = places.get(key).filter(|place| place.until > now)?;
        let copy = place.copy.clone()?;
        Some(Shelved { remaining: place.until.since(now), ..copy })
    }

    fn keep(&self, copy: &Shelved, asked: Instant) -> Result<()> {
        if asked.elapsed() > Shelved::LATEST {
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

impl Default for MemoryShelf {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Shelf for MemoryShelf {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn hints(&self) -> Option<Hints> {
        Some(self.hints.clone())
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Shelved>>> {
        keys.iter().map(|key| Ok(self.find(key))).collect()
    }

    async fn put(&self, copies: &[Shelved], asked: Instant) -> Vec<Result<()>> {
        copies.iter().map(|copy| self.keep(copy, asked)).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let removed = self.mark(key, Shelved::MARK);
        self.hints.tell(key);
        Ok(removed)
    }
}
