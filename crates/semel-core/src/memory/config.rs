//! Builds a memory store: its bounds and its clock.

use std::sync::Arc;

use super::MemoryStore;
use crate::{Clock, Error, Result, SystemClock};

/// What a full store does when it has no expired records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuses new claims.
    #[default]
    Refuse,
    /// Forgets completed records, those near to expiry first: their duplicates run again.
    EvictCompleted,
}

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    pub(super) when_full: WhenFull,
    pub(super) clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// Records held unless set otherwise.
    pub const MAX_ENTRIES: usize = 1_000_000;
    /// Bytes held unless set otherwise.
    pub const MAX_BYTES: usize = 1024 * 1024 * 1024;
    /// The least that can hold one record.
    pub const MIN_BYTES: usize = 16 * 1024;

    pub(super) fn new() -> Self {
        Self {
            max_entries: Self::MAX_ENTRIES,
            max_bytes: Self::MAX_BYTES,
            when_full: WhenFull::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// At most this many records.
    pub fn max_entries(self, max_entries: usize) -> Self {
        Self { max_entries, ..self }
    }

    /// At most this many bytes. One eighth is reserved for outcomes of claims that are already granted.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// What to do when full.
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// The clock that decides when leases and retention end.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Makes the store, or names the bound that is out of range.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for bounds that could not hold one record.
    pub fn build(self) -> Result<MemoryStore> {
        if self.max_entries == 0 {
            return Err(Error::invalid("memory store: max_entries is 0; it must be at least 1"));
        }
        if self.max_bytes < Self::MIN_BYTES {
            let (bytes, min) = (self.max_bytes, Self::MIN_BYTES);
            return Err(Error::invalid(format!(
                "memory store: max_bytes is {bytes}; it must be at least {min}"
            )));
        }
        Ok(MemoryStore::from_config(self))
    }
}
