//! Opening: from a folder to an index and a writer.

use std::sync::Arc;

use semel_core::{Clock, Record, Result, Timestamp};

use crate::{
    clock::StoreClock,
    disk::Disk,
    identity::Identity,
    index::Index,
    log::{Filling, Recovered, Segments, recover},
    space::Space,
    writer::{Writer, gone, read},
};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    pub(crate) index: Arc<Index>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) clock: StoreClock,
    pub(crate) writer: Writer,
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    filling: Filling,
    clock: Arc<dyn Clock>,
) -> Result<Opened> {
    let identity = Identity::of(&*disk)?;
    let index = Arc::new(Index::new());
    let show = |found| index.load(found);
    let Recovered { log, at } = recover(disk, identity.store, segment_bytes, filling, show)?;
    let clock = StoreClock::not_before(clock, at);
    let segments = log.segments();
    expire_owners(&index, &segments, clock.now())?;
    let space = Space::of(&index);
    let writer = Writer::new(index.clone(), log, clock.clone(), space);
    Ok(Opened { identity, index, segments, clock, writer })
}

/// Whoever owned a key is gone: this process alone has the folder. Drops what has expired.
fn expire_owners(index: &Index, segments: &Segments, now: Timestamp) -> Result<()> {
    for shard in index.shards() {
        let mut shard = shard.lock();
        shard.retain(|slot| !slot.is_expired(now));
        for (key, place) in shard.in_progress() {
            let record = read(segments, &key, place)?.ok_or_else(gone)?;
            shard.rearm(without_owner(record, now));
        }
    }
    Ok(())
}

/// Its lease is over. When the record expires is left as it is on the disk: what was absent must not
/// come back. An owner that gave up itself left a backoff, which stays.
fn without_owner(record: Record, now: Timestamp) -> Record {
    let lease_until =
        if record.abandoned { record.lease_until } else { now.min(record.lease_until) };
    Record { lease_until, ..record }
}
