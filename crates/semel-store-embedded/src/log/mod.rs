//! The log: segments of batches. One writer appends and syncs them; any thread reads them.
//!
//! **A batch is durable when [`SegmentLog::append`] returns.** When it fails, the next batch takes its
//! position and its sequence, so that an unacknowledged batch never follows an acknowledged one. Segments are given up
//! from the oldest on: an older entry of a key is gone before a newer one.

mod frame;
pub(crate) mod manifest;
mod missing_segments;
mod recover;
mod segment;
mod segments;
mod spare;

use std::{io, sync::Arc};

use semel_core::{Error, ErrorKind, Result, Timestamp};

use self::{
    frame::{FrameEntry, HEAD},
    segment::{HEADER, SegmentHeader},
    spare::Spare,
};
use crate::disk::{Disk, DiskFile};

pub(crate) use self::{
    frame::{BatchDraft, Extent},
    missing_segments::missing_in_use,
    recover::{LogEntry, Recovered, recover},
    segment::{FolderId, name_of, number_of},
    segments::Segments,
    spare::Filling,
};

/// The first segment is small, so that a new folder opens quickly. Each segment has twice the capacity of the last.
const FIRST_CAPACITY: u64 = 1 << 20;

/// Kept free in each segment for [`SegmentLog::trim`]: on a full disk, giving up old segments makes space.
const FOR_TRIM: u64 = 4096;

/// Where a record's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) extent: Extent,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct SegmentLog {
    disk: Arc<dyn Disk>,
    store: FolderId,
    segments: Arc<Segments>,
    active: Active,
    /// The sequence of the next batch.
    sequence: u64,
    max_capacity: u64,
    spare: Spare,
    /// A header of the next segment may be on the disk. Recovery would ignore batches that are written here after it.
    leaving: bool,
}

/// The segment that is written to.
#[derive(Debug)]
struct Active {
    header: SegmentHeader,
    file: Arc<dyn DiskFile>,
    end: u64,
}

/// What the remaining capacity may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// For every request.
    Enough,
    /// There is no next segment: only for owners that settle a claim.
    Low,
}

impl SegmentLog {
    pub(crate) fn segments(&self) -> Arc<Segments> {
        self.segments.clone()
    }

    pub(crate) const fn active(&self) -> u32 {
        self.active.header.number
    }

    /// The largest batch that is sure to fit into a segment.
    pub(crate) const fn max_batch(&self) -> usize {
        (self.max_capacity / 2) as usize
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.bytes()
    }

    /// Whether new claims may use what is left.
    pub(crate) fn capacity(&mut self) -> Capacity {
        let capacity = self.active.header.capacity;
        if self.active.end + capacity / 4 <= capacity {
            return Capacity::Enough;
        }
        // The disk may have free space again.
        self.prepare_spare();
        if self.spare.is_missing() { Capacity::Low } else { Capacity::Enough }
    }

    /// Writes a batch and makes it durable. Returns its segment and the offset to add to the extents of the draft.
    pub(crate) fn append(&mut self, draft: &mut BatchDraft, at: Timestamp) -> Result<(u32, u32)> {
        if !self.has_capacity(draft.len() as u64 + FOR_TRIM) {
            self.roll(draft.len())?;
        }
        self.write(draft, at)
    }

    const fn has_capacity(&self, length: u64) -> bool {
        !self.leaving && self.active.end + length <= self.active.header.capacity
    }

    fn write(&mut self, draft: &mut BatchDraft, at: Timestamp) -> Result<(u32, u32)> {
        let active = &mut self.active;
        let bytes = draft.seal(active.header.salt, self.sequence, at);
        active.file.write_at(bytes, active.end).map_err(|error| refused("write to", error))?;
        active.file.sync().map_err(|error| unsure("sync", error))?;
        if !active.file.has_name().map_err(|error| unsure("look at", error))? {
            return Err(removed(&name_of(active.header.number)));
        }
        let base = u32::try_from(active.end).expect("a segment is smaller than 4 GiB");
        active.end += bytes.len() as u64;
        self.sequence += 1;
        Ok((active.header.number, base))
    }

    /// Switches to the next segment, which has capacity for `length` bytes.
    fn roll(&mut self, length: usize) -> Result<()> {
        self.prepare_spare();
        let number = self.active.header.number + 1;
        let file = self.spare.take().map_err(|error| refused("make a segment in", error))?;
        let capacity = file.len().map_err(|error| refused("look at", error))?;
        if (HEADER + length) as u64 + FOR_TRIM > capacity {
            // The spare was made for shorter batches. It is not given back: it has to be synced again first.
            return self.enlarge(number, length);
        }
        let first = self.sequence;
        self.leaving = true;
        match begin(
            &*file,
            SegmentHeader { store: self.store, number, salt: rand::random(), first, capacity },
        ) {
            Ok(header) => {
                self.leaving = false;
                self.active = Active { header, file, end: HEADER as u64 };
                self.segments.add(number, capacity);
                self.prepare_spare();
                Ok(())
            }
            Err(error) => {
                self.spare.give_back(file);
                Err(refused("begin a segment in", error))
            }
        }
    }

    /// Makes the spare long enough for such a batch. It may be longer than the setting: records that were written under
    /// an earlier, larger setting have to be moved too.
    fn enlarge(&mut self, number: u32, length: usize) -> Result<()> {
        let capacity = self.max_capacity.max((HEADER + length) as u64 + FOR_TRIM);
        spare::fill(&*self.disk, number, capacity)
            .map_err(|error| refused("make a segment in", error))?;
        self.roll(length)
    }

    fn prepare_spare(&mut self) {
        let capacity = (self.active.header.capacity * 2).min(self.max_capacity);
        self.spare.prepare(self.active.header.number + 1, capacity);
    }

    /// Gives up every segment before `first`.
    pub(crate) fn trim(&mut self, first: u32, draft: &mut BatchDraft, at: Timestamp) -> Result<()> {
        draft.clear();
        draft.trim(first);
        // Durable before the files are removed: from then on recovery does not miss them.
        let fits = self.has_capacity(draft.len() as u64);
        let trimmed = if fits { self.write(draft, at) } else { self.append(draft, at) };
        draft.clear();
        trimmed?;
        for number in self.segments.drop_before(first) {
            // A file that could not be removed is removed at the next opening.
            let _ = self.disk.remove(&name_of(number));
        }
        Ok(())
    }
}

/// Writes a header and makes it durable before any batch: a segment whose header is torn has no batches.
fn begin(file: &dyn DiskFile, header: SegmentHeader) -> io::Result<SegmentHeader> {
    file.write_at(&header.write(), 0)?;
    file.sync()?;
    Ok(header)
}

/// The disk refused the write: nothing of it is acknowledged.
fn refused(what: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            let subject = format!("embedded store: no space left to {what} its folder: {error}");
            Error::new(ErrorKind::Full, subject).with_source(error)
        }
        _ => unsure(what, error),
    }
}

fn unsure(what: &str, error: io::Error) -> Error {
    let subject = format!("embedded store: cannot {what} its folder: {error}");
    Error::new(ErrorKind::Unavailable, subject).with_source(error)
}

/// A file was removed or replaced while this process has it open.
fn removed(name: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "embedded store: {name} was removed from its folder while it was in use; stop the process, and \
             restore the folder from a backup (keys recorded since that backup run again)"
        ),
    )
}

/// A file that has records is not there.
fn missing(number: u32) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "embedded store: {} is missing; restore it from a backup (keys recorded since that backup run again), or \
             start with a new folder, where all keys recorded in this one run again",
            name_of(number)
        ),
    )
}

fn corrupt(what: &str) -> Error {
    let fix = "restore the folder from a backup (keys recorded since that backup run again), or move it away to \
               start anew, where all keys recorded in it run again";
    Error::new(ErrorKind::Corrupt, format!("embedded store: {what}; {fix}"))
}
