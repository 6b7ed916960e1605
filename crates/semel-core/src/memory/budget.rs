//! The bounds on entries and bytes of all shards together.
//!
//! All cores would contend for one shared counter. So each shard takes chunks of the budget and uses them under its own
//! lock. In a small store a chunk is a single entry, so small bounds are exact.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The part of the bounds that no shard has taken.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    max_bytes: usize,
    chunk: ShardBudget,
}

/// The part of the bounds that a shard has taken and not used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShardBudget {
    entries: usize,
    bytes: usize,
}

/// Chunks per shard when the store is empty.
const CHUNKS: usize = 16;

impl MemoryBudget {
    pub(super) fn new(max_entries: usize, max_bytes: usize, shards: usize) -> Self {
        let parts = shards * CHUNKS;
        Self {
            entries: AtomicUsize::new(max_entries),
            bytes: AtomicUsize::new(max_bytes),
            max_bytes,
            chunk: ShardBudget { entries: (max_entries / parts).max(1), bytes: max_bytes / parts },
        }
    }

    /// Bytes in use, given the bytes that shards have taken and not used.
    pub(super) fn used_bytes(&self, unused: usize) -> usize {
        self.max_bytes.saturating_sub(self.bytes.load(Relaxed)).saturating_sub(unused)
    }

    /// One eighth is for the outcomes of claims that are already granted; no new record may use it.
    const fn reserve(&self) -> usize {
        self.max_bytes / 8
    }
}

impl ShardBudget {
    /// Reserves an entry and its bytes for a new record, or changes nothing.
    pub(super) fn reserve_record(&mut self, budget: &MemoryBudget, bytes: usize) -> bool {
        if self.entries == 0 {
            self.entries = take(&budget.entries, budget.chunk.entries, 1, 0);
        }
        if self.entries == 0 || !self.ensure(budget, bytes, budget.reserve()) {
            return false;
        }
        self.entries -= 1;
        self.bytes -= bytes;
        true
    }

    /// Reserves bytes for a record that grew, or changes nothing.
    pub(super) fn grow(&mut self, budget: &MemoryBudget, bytes: usize) -> bool {
        let is_reserved = self.ensure(budget, bytes, 0);
        if is_reserved {
            self.bytes -= bytes;
        }
        is_reserved
    }

    /// Returns the bytes of a record that shrank.
    pub(super) fn shrink(&mut self, budget: &MemoryBudget, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > 2 * budget.chunk.bytes {
            let spare = self.bytes - budget.chunk.bytes;
            self.bytes -= spare;
            budget.bytes.fetch_add(spare, Relaxed);
        }
    }

    /// Returns the entry and the bytes of a deleted record.
    pub(super) fn return_record(&mut self, budget: &MemoryBudget, bytes: usize) {
        self.shrink(budget, bytes);
        self.entries += 1;
        if self.entries > 2 * budget.chunk.entries {
            let spare = self.entries - budget.chunk.entries;
            self.entries -= spare;
            budget.entries.fetch_add(spare, Relaxed);
        }
    }

    /// Returns everything to the budget, so that another shard can use it.
    pub(super) fn return_all(&mut self, budget: &MemoryBudget) {
        budget.entries.fetch_add(self.entries, Relaxed);
        budget.bytes.fetch_add(self.bytes, Relaxed);
        *self = Self::default();
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn ensure(&mut self, budget: &MemoryBudget, bytes: usize, floor: usize) -> bool {
        if self.bytes < bytes {
            let missing = bytes - self.bytes;
            self.bytes += take(&budget.bytes, budget.chunk.bytes.max(missing), missing, floor);
        }
        self.bytes >= bytes
    }
}

/// Takes `wanted`, or else `needed`, or else nothing, and leaves at least `floor`.
fn take(from: &AtomicUsize, wanted: usize, needed: usize, floor: usize) -> usize {
    [wanted, needed]
        .into_iter()
        .find(|amount| {
            let rest = |left: usize| left.checked_sub(*amount).filter(|rest| *rest >= floor);
            from.try_update(Relaxed, Relaxed, rest).is_ok()
        })
        .unwrap_or(0)
}
