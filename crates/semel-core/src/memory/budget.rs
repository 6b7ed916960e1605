//! Counts entries and bytes over all shards, and says no.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bounds and what is used of them. Taking and giving back are always paired, so the counts never
/// drift; they are approximate only while two threads cross the bound at once.
#[derive(Debug)]
pub(super) struct Budget {
    max_entries: usize,
    max_bytes: usize,
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl Budget {
    pub(super) const fn new(max_entries: usize, max_bytes: usize) -> Self {
        let (entries, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { max_entries, max_bytes, entries, bytes }
    }

    /// Takes room for one new record, or leaves everything as it was.
    pub(super) fn admit(&self, bytes: usize) -> bool {
        let entries = self.entries.fetch_add(1, Relaxed) + 1;
        let used = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let admitted = entries <= self.max_entries && used <= self.max_bytes / 8 * 7;
        if !admitted {
            self.dismiss(bytes);
        }
        admitted
    }

    /// Gives back the room of a record.
    pub(super) fn dismiss(&self, bytes: usize) {
        self.entries.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// A record was `old` bytes and is `new` now.
    pub(super) fn resize(&self, old: usize, new: usize) {
        self.bytes.fetch_add(new, Relaxed);
        self.bytes.fetch_sub(old, Relaxed);
    }

    /// Whether `more` bytes fit under the hard bound.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.bytes.load(Relaxed).saturating_add(more) <= self.max_bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.load(Relaxed)
    }
}
