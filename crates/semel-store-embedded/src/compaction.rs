//! Compaction: counts how much of each segment is still needed, and frees the rest.
//!
//! Segments are given up from the oldest on. Most can go once all of their records have expired; the remaining records
//! are moved to the end of the log when more than half of the log is not needed any more.

use std::collections::BTreeMap;

use semel_core::{KeyHash, Record, Result};

use crate::{
    index::Index,
    log::{Extent, Location},
    writer::LogWriter,
};

/// How many records are moved at once at most.
const MOVED_AT_ONCE: usize = 512;

/// A log up to this length is rewritten to remove erased content from the disk. In a longer log the content goes with
/// its segment.
const SCRUBBED: u64 = 256 << 20;

/// Up to this many unneeded bytes are left without moving records.
const SLACK: u64 = 64 << 20;

/// A record that is still needed, and where it is.
type Staying = (KeyHash, Location, Option<Record>);

#[derive(Debug)]
pub(crate) struct Compaction {
    /// Bytes needed, by segment.
    live: BTreeMap<u32, u64>,
    /// The shard to look at next for records to move.
    shard: usize,
    slack: u64,
    /// Segments up to this one hold erased content.
    scrubbed: u32,
    failing: bool,
}

impl Compaction {
    pub(crate) fn of(index: &Index) -> Self {
        let mut compaction =
            Self { live: BTreeMap::new(), shard: 0, slack: SLACK, scrubbed: 0, failing: false };
        for shard in index.shards() {
            shard.lock().slots().for_each(|slot| compaction.used(slot.location));
        }
        compaction
    }

    #[cfg(test)]
    pub(crate) const fn with_slack(mut self, slack: u64) -> Self {
        self.slack = slack;
        self
    }

    pub(crate) fn used(&mut self, location: Location) {
        *self.live.entry(location.segment).or_default() += u64::from(location.extent.length);
    }

    pub(crate) fn freed(&mut self, location: Location) {
        if let Some(live) = self.live.get_mut(&location.segment) {
            *live -= u64::from(location.extent.length);
            if *live == 0 {
                self.live.remove(&location.segment);
            }
        }
    }

    /// The record at this location was erased: its bytes should leave the disk soon.
    pub(crate) fn scrub(&mut self, location: Location) {
        self.scrubbed = self.scrubbed.max(location.segment);
    }

    /// The oldest segment with a needed record.
    fn first_needed(&self) -> Option<u32> {
        self.live.keys().next().copied()
    }

    fn live(&self) -> u64 {
        self.live.values().sum()
    }
}

impl LogWriter {
    /// Gives up segments without needed records, and moves a few records when too many bytes are unneeded.
    pub(crate) fn compact(&mut self) {
        let (first, active) = (self.segments.first(), self.log.active());
        let needed = self.compaction.first_needed().unwrap_or(active).min(active);
        let compacted = if needed > first {
            self.log.trim(needed, &mut self.draft, self.clock.now())
        } else if first < active && self.is_wasteful(first) {
            self.move_from(first)
        } else {
            Ok(())
        };
        match compacted {
            Ok(()) => self.compaction.failing = false,
            // Logged once: the failure repeats with every batch until the disk works again.
            Err(_) if self.compaction.failing => {}
            Err(error) => {
                self.compaction.failing = true;
                tracing::warn!(%error, "embedded store: old segments could not be given up");
            }
        }
    }

    fn is_wasteful(&self, first: u32) -> bool {
        let bytes = self.log.bytes();
        let holds_erased = first <= self.compaction.scrubbed && bytes <= SCRUBBED;
        holds_erased || bytes > 2 * self.compaction.live() + self.compaction.slack
    }

    /// Moves records of the next shard out of a segment.
    fn move_from(&mut self, segment: u32) -> Result<()> {
        let (expired, staying) = self.next_in(segment);
        for key in expired {
            self.index
                .remove(&key)
                .into_iter()
                .for_each(|location| self.compaction.freed(location));
        }
        let (mut moved, mut unread) = (Vec::with_capacity(staying.len()), None);
        for (key, location, record) in staying {
            let extent = match record {
                Some(record) => self.draft.put(&record),
                None => match self.segments.read(location) {
                    Ok(Some(bytes)) => self.draft.put_encoded(&bytes),
                    Ok(None) => continue,
                    // A moved copy would get a valid checksum: the damaged record stays, and its segment too.
                    Err(error) => {
                        unread = Some(error);
                        continue;
                    }
                },
            };
            moved.push((key, location, extent));
            if self.draft.len() > self.log.max_batch() / 4 {
                break;
            }
        }
        // A damaged record must not keep the next shards from being moved.
        self.compaction.shard += usize::from(unread.is_some() && moved.is_empty());
        self.show_moved(moved)?;
        unread.map_or(Ok(()), Err)
    }

    /// Keys of the next shard whose records are in this segment, up to a limit: the expired ones, and the ones to move.
    /// Records in progress are taken from memory.
    fn next_in(&mut self, segment: u32) -> (Vec<KeyHash>, Vec<Staying>) {
        let now = self.clock.now();
        let (mut expired, mut staying) = (Vec::new(), Vec::new());
        let shards = self.index.shards_from(None);
        let shard = shards[self.compaction.shard % shards.len()].lock();
        for slot in shard.slots().filter(|slot| slot.location.segment == segment) {
            match slot.record() {
                None if slot.is_expired(now) => expired.push(slot.key),
                record => staying.push((slot.key, slot.location, record.cloned())),
            }
            if staying.len() == MOVED_AT_ONCE {
                return (expired, staying);
            }
        }
        if staying.is_empty() {
            self.compaction.shard += 1;
        }
        (expired, staying)
    }

    fn show_moved(&mut self, moved: Vec<(KeyHash, Location, Extent)>) -> Result<()> {
        if moved.is_empty() {
            return Ok(());
        }
        let base = self.log.append(&mut self.draft, self.clock.now());
        self.draft.clear();
        let (segment, base) = base?;
        for (key, from, extent) in moved {
            let to = Location { segment, extent: extent.behind(base) };
            if self.index.relocate(&key, from, to) {
                self.compaction.freed(from);
                self.compaction.used(to);
            }
        }
        Ok(())
    }
}
