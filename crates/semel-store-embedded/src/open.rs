//! Opening: from a folder to an index and a writer.

use std::sync::Arc;

use semel_core::{Clock, Record, Result, State, Timestamp, codec};

use crate::{
    clock::StoreClock,
    disk::Disk,
    identity::Identity,
    index::{Index, Slot},
    log::{Entry, Filling, Place, Recovered, Segments, recover},
    space::Space,
    writer::{Writer, decode},
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
    let show = |place, entry: Entry<'_>| show(&index, place, entry);
    let Recovered { log, at } = recover(disk, identity.store, segment_bytes, filling, show)?;
    let clock = StoreClock::not_before(clock, at);
    let segments = log.segments();
    expire_owners(&index, &segments, clock.now())?;
    let space = Space::of(&index);
    let writer = Writer::new(index.clone(), log, clock.clone(), space);
    Ok(Opened { identity, index, segments, clock, writer })
}

fn show(index: &Index, place: Place, entry: Entry<'_>) -> Result<()> {
    match entry {
        Entry::Put(bytes) => {
            index.load(Slot::found(place, codec::peek(bytes)?));
        }
        Entry::Delete(key) => {
            index.remove(&key);
        }
        Entry::Trim(_) => {}
    }
    Ok(())
}

/// Whoever owned a key is gone: this process alone has the folder. Drops what has expired.
fn expire_owners(index: &Index, segments: &Segments, now: Timestamp) -> Result<()> {
    for shard in index.shards() {
        let mut shard = shard.lock();
        shard.retain(|slot| slot.state == State::InProgress || !slot.is_expired(now));
        for slot in shard.slots_mut().filter(|slot| slot.state == State::InProgress) {
            let bytes = segments.read(slot.place)?;
            let record = bytes.map(|bytes| decode(&slot.key, &bytes)).transpose()?;
            slot.hold(record.map(|record| without_owner(record, now)));
        }
        shard.requeue_all();
    }
    Ok(())
}

/// How long the owner had renewed its lease is not on the disk, so it is taken to have ended now.
fn without_owner(record: Record, now: Timestamp) -> Record {
    let expires_at = record.expires_at.map(|_| now.after(record.terms.retention));
    Record { lease_until: now, expires_at, ..record }
}
