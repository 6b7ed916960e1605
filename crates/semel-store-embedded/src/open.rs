//! Opens a folder: reads its log into an index and sets up the writer.

use std::sync::Arc;

use semel_core::{Clock, Record, Result, Timestamp};

use crate::{
    clock::MonotonicClock,
    compaction::Compaction,
    disk::Disk,
    identity::FolderIdentity,
    index::Index,
    log::{Filling, Recovered, Segments, recover},
    writer::{LogWriter, gone, read},
};

/// An open folder.
#[derive(Debug)]
pub(crate) struct OpenedFolder {
    pub(crate) identity: FolderIdentity,
    pub(crate) index: Arc<Index>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) clock: MonotonicClock,
    pub(crate) writer: LogWriter,
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    filling: Filling,
    clock: Arc<dyn Clock>,
) -> Result<OpenedFolder> {
    let identity = FolderIdentity::of(&*disk)?;
    let index = Arc::new(Index::new());
    let show = |found| index.load(found);
    let Recovered { log, at } = recover(disk, identity.store, segment_bytes, filling, show)?;
    let clock = MonotonicClock::not_before(clock, at);
    let segments = log.segments();
    end_leases(&index, &segments, clock.now())?;
    let compaction = Compaction::of(&index);
    let writer = LogWriter::new(index.clone(), log, clock.clone(), compaction);
    Ok(OpenedFolder { identity, index, segments, clock, writer })
}

/// Ends the leases of earlier owners: this process alone has the folder, so they are gone. Drops expired records.
fn end_leases(index: &Index, segments: &Segments, now: Timestamp) -> Result<()> {
    for shard in index.shards() {
        let mut shard = shard.lock();
        shard.retain(|slot| !slot.is_expired(now));
        for (key, location) in shard.in_progress() {
            let record = read(segments, &key, location)?.ok_or_else(gone)?;
            shard.update_lease(without_owner(record, now));
        }
    }
    Ok(())
}

/// Ends the lease of a record. Its expiry stays as it is on the disk: a record that was absent must not come back. The
/// backoff of an abandoned record stays too. The record counts as contested, since no owner is left that could be heard
/// in a grace period.
fn without_owner(record: Record, now: Timestamp) -> Record {
    let lease_until =
        if record.abandoned { record.lease_until } else { now.min(record.lease_until) };
    Record { lease_until, contested: !record.abandoned, ..record }
}
