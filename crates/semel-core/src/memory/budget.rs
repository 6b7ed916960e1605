//! Bounds on entries and bytes over all shards.
//!
//! A shared counter would be fought over by every core. Each shard therefore holds a purse that it
//! fills from the budget in chunks, and uses under its own lock. In a small store the chunk is a
//! single entry, so small bounds are exact.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What nobody holds yet.
#[derive(Debug)]
pub(super) struct Budget {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    max_bytes: usize,
    chunk: Purse,
}

/// What a shard may still use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Purse {
    entries: usize,
    bytes: usize,
}

/// Chunks per shard when the store is empty.
const CHUNKS: usize = 16;

impl Budget {
    pub(super) fn new(max_entries: usize, max_bytes: usize, shards: usize) -> Self {
        let parts = shards * CHUNKS;
        Self {
            entries: AtomicUsize::new(max_entries),
            bytes: AtomicUsize::new(max_bytes),
            max_bytes,
            chunk: Purse { entries: (max_entries / parts).max(1), bytes: max_bytes / parts },
        }
    }

    /// Bytes in use, given what is left in all purses.
    pub(super) fn used_bytes(&self, in_purses: usize) -> usize {
        self.max_bytes.saturating_sub(self.bytes.load(Relaxed)).saturating_sub(in_purses)
    }

    /// An eighth is for the outcomes of claims already granted; no new record is admitted into it.
    const fn reserve(&self) -> usize {
        self.max_bytes / 8
    }
}

impl Purse {
    /// Pays for a new record, or changes nothing.
    pub(super) fn admit(&mut self, budget: &Budget, bytes: usize) -> bool {
        if self.entries == 0 {
            self.entries = take(&budget.entries, budget.chunk.entries, 1, 0);
        }
        if self.entries == 0 || !self.have(budget, bytes, budget.reserve()) {
            return false;
        }
        self.entries -= 1;
        self.bytes -= bytes;
        true
    }

    /// Pays for a record that grew, or changes nothing.
    pub(super) fn grow(&mut self, budget: &Budget, bytes: usize) -> bool {
        let paid = self.have(budget, bytes, 0);
        if paid {
            self.bytes -= bytes;
        }
        paid
    }

    /// A record shrank.
    pub(super) fn shrink(&mut self, budget: &Budget, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > 2 * budget.chunk.bytes {
            let spare = self.bytes - budget.chunk.bytes;
            self.bytes -= spare;
            budget.bytes.fetch_add(spare, Relaxed);
        }
    }

    /// A record is gone.
    pub(super) fn dismiss(&mut self, budget: &Budget, bytes: usize) {
        self.shrink(budget, bytes);
        self.entries += 1;
        if self.entries > 2 * budget.chunk.entries {
            let spare = self.entries - budget.chunk.entries;
            self.entries -= spare;
            budget.entries.fetch_add(spare, Relaxed);
        }
    }

    /// Gives everything back, so that another shard can use it.
    pub(super) fn empty(&mut self, budget: &Budget) {
        budget.entries.fetch_add(self.entries, Relaxed);
        budget.bytes.fetch_add(self.bytes, Relaxed);
        *self = Self::default();
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn have(&mut self, budget: &Budget, bytes: usize, floor: usize) -> bool {
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
