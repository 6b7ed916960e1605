//! The index: the location of each key's record, and when the record is due for a purge.
//!
//! It holds only what is durable: the writer applies a batch after its sync. Only records in progress are in memory
//! as a whole; most renewals change them in memory alone, since an owner does not outlive the process.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use parking_lot::Mutex;
use semel_core::{
    DueQueue, KeyHash, Record, State, Timestamp,
    codec::Peek,
    steps::{self, Change},
};

use crate::log::{Location, LogEntry};

/// Shards are chosen by the first bits of the key's hash, so that their order is the keys' order.
const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<IndexShard>]>,
}

#[derive(Debug, Default)]
pub(crate) struct IndexShard {
    table: HashTable<IndexSlot>,
    due: DueQueue,
    counts: StateCounts,
}

/// How many records are in the states operators watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateCounts {
    pub(crate) records: u64,
    pub(crate) unknown: u64,
    pub(crate) dead: u64,
}

/// The entry of one key.
#[derive(Debug)]
pub(crate) struct IndexSlot {
    pub(crate) key: KeyHash,
    pub(crate) location: Location,
    pub(crate) state: State,
    pub(crate) expires_at: Option<Timestamp>,
    queued_at: Option<Timestamp>,
    /// The record of a key in progress.
    held: Option<Box<HeldRecord>>,
}

/// A record in memory.
#[derive(Debug)]
struct HeldRecord {
    record: Record,
    /// The end of its lease as it is on the disk.
    written_until: Timestamp,
}

/// What a purge has to do.
#[derive(Debug, Default)]
pub(crate) struct DueKeys {
    /// The locations of expired records, which were removed from the index.
    pub(crate) freed: Vec<Location>,
    /// The new records of lost owners. The index does not have them yet.
    pub(crate) lost: Vec<Record>,
}

impl IndexSlot {
    pub(crate) fn new(location: Location, record: Record) -> Self {
        let (key, state, expires_at) = (record.key, record.state, record.expires_at);
        let written_until = record.lease_until;
        let held = || Box::new(HeldRecord { record, written_until });
        let held = (state == State::InProgress).then(held);
        Self { key, location, state, expires_at, queued_at: None, held }
    }

    /// The entry of a record that recovery found in the log.
    pub(crate) const fn found(location: Location, Peek { key, state, expires_at }: Peek) -> Self {
        Self { key, location, state, expires_at, queued_at: None, held: None }
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The record, if it is in memory.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.held.as_ref().map(|held| &held.record)
    }

    /// When the record counts as absent after a restart: renewals are not on the disk.
    #[cfg(test)]
    pub(crate) fn expires_on_disk_at(&self) -> Option<Timestamp> {
        let held = self.held.as_ref();
        let at = held.map_or(self.expires_at, |held| {
            Some(held.written_until.after(held.record.terms.retention))
        });
        at.filter(|_| self.expires_at.is_some())
    }

    /// True when a claim was renewed for so long that its expiry on the disk is too early by more than
    /// an eighth of its retention.
    pub(crate) fn is_stretched(&self, lease_until: Timestamp) -> bool {
        self.expires_at.is_some()
            && self.held.as_ref().is_some_and(|held| {
                let ahead = lease_until.since(held.written_until);
                ahead > held.record.terms.retention.to_duration() / 8
            })
    }

    fn due_at(&self) -> Option<Timestamp> {
        self.record().map_or(self.expires_at, Record::due_at)
    }

    /// `None` for a claim that recovery found: its lease is not known yet.
    fn look_at(&self) -> Option<Timestamp> {
        match self.record() {
            Some(record) => record.look_at(),
            None if self.state == State::InProgress => None,
            None => self.expires_at,
        }
    }
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Mutex<IndexShard>> {
        self.shards.iter()
    }

    /// The shards that hold keys after `key`, in order.
    pub(crate) fn shards_from(&self, key: Option<&KeyHash>) -> &[Mutex<IndexShard>] {
        &self.shards[key.map_or(0, shard_of)..]
    }

    /// Calls `look` with the slot of a key, under its shard's lock.
    pub(crate) fn look<T>(&self, key: &KeyHash, look: impl FnOnce(Option<&IndexSlot>) -> T) -> T {
        look(self.shard(key).lock().get(key))
    }

    /// Sets the slot of a key, and returns the location that its record had.
    pub(crate) fn put(&self, slot: IndexSlot) -> Option<Location> {
        self.shard(&slot.key).lock().put(slot)
    }

    /// Applies entries of the log, oldest first, shard by shard: the table of one shard fits the processor's cache, the
    /// whole index does not.
    pub(crate) fn load(&self, found: Vec<LogEntry>) {
        let mut by_shard: Vec<Vec<LogEntry>> = vec![Vec::new(); SHARDS];
        for found in found {
            let (LogEntry::Put(_, Peek { key, .. }) | LogEntry::Delete(key)) = found;
            by_shard[shard_of(&key)].push(found);
        }
        for (shard, found) in self.shards.iter().zip(by_shard) {
            let mut shard = shard.lock();
            for found in found {
                match found {
                    LogEntry::Put(location, peek) => shard.put(IndexSlot::found(location, peek)),
                    LogEntry::Delete(key) => shard.remove(&key),
                };
            }
        }
    }

    /// Removes a key, and returns the location that its record had.
    pub(crate) fn remove(&self, key: &KeyHash) -> Option<Location> {
        self.shard(key).lock().remove(key)
    }

    /// Updates the lease of a record in progress, in memory only.
    pub(crate) fn update_lease(&self, record: Record) {
        self.shard(&record.key).lock().update_lease(record);
    }

    /// Sets a key's new location, if its record still is at `from`.
    pub(crate) fn relocate(&self, key: &KeyHash, from: Location, to: Location) -> bool {
        let mut shard = self.shard(key).lock();
        let slot = shard.table.find_mut(hash_of(key), |slot| slot.key == *key);
        slot.filter(|slot| slot.location == from).map(|slot| slot.location = to).is_some()
    }

    /// Queues a key again for when it is due.
    pub(crate) fn requeue(&self, key: &KeyHash) {
        self.shard(key).lock().requeue(key);
    }

    pub(crate) fn counts(&self) -> StateCounts {
        self.shards.iter().map(|shard| shard.lock().counts).fold(
            StateCounts::default(),
            |sum, counts| StateCounts {
                records: sum.records + counts.records,
                unknown: sum.unknown + counts.unknown,
                dead: sum.dead + counts.dead,
            },
        )
    }

    fn shard(&self, key: &KeyHash) -> &Mutex<IndexShard> {
        &self.shards[shard_of(key)]
    }
}

impl IndexShard {
    pub(crate) fn get(&self, key: &KeyHash) -> Option<&IndexSlot> {
        self.table.find(hash_of(key), |slot| slot.key == *key)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &IndexSlot> {
        self.table.iter()
    }

    /// The keys in progress, and where their records are.
    pub(crate) fn in_progress(&self) -> Vec<(KeyHash, Location)> {
        let slots = self.slots().filter(|slot| slot.state == State::InProgress);
        slots.map(|slot| (slot.key, slot.location)).collect()
    }

    fn put(&mut self, mut slot: IndexSlot) -> Option<Location> {
        let hash = hash_of(&slot.key);
        self.counts.count(slot.state, 1);
        let Some(present) = self.table.find_mut(hash, |present| present.key == slot.key) else {
            queue(&mut self.due, &mut slot);
            self.table.insert_unique(hash, slot, |slot| hash_of(&slot.key));
            return None;
        };
        slot.queued_at = present.queued_at;
        queue(&mut self.due, &mut slot);
        let before = std::mem::replace(present, slot);
        self.counts.count(before.state, -1);
        Some(before.location)
    }

    /// Removes the slots for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&IndexSlot) -> bool) {
        let counts = &mut self.counts;
        self.table.retain(|slot| {
            let kept = keep(slot);
            if !kept {
                counts.count(slot.state, -1);
            }
            kept
        });
    }

    fn remove(&mut self, key: &KeyHash) -> Option<Location> {
        let entry = self.table.find_entry(hash_of(key), |slot| slot.key == *key).ok()?;
        let (slot, _) = entry.remove();
        self.counts.count(slot.state, -1);
        Some(slot.location)
    }

    pub(crate) fn update_lease(&mut self, record: Record) {
        let slot = self.table.find_mut(hash_of(&record.key), |slot| slot.key == record.key);
        if let Some(slot) = slot {
            slot.expires_at = record.expires_at;
            match &mut slot.held {
                Some(held) => held.record = record,
                None => {
                    let written_until = record.lease_until;
                    slot.held = Some(Box::new(HeldRecord { record, written_until }));
                }
            }
            queue(&mut self.due, slot);
        }
    }

    /// Queues every slot anew.
    fn requeue_all(&mut self) {
        self.due = DueQueue::default();
        let mut slots: Vec<&mut IndexSlot> = self.table.iter_mut().collect();
        slots.sort_unstable_by_key(|slot| slot.due_at());
        for slot in slots {
            slot.queued_at = None;
            queue(&mut self.due, slot);
        }
    }

    /// Takes up to `most` keys that are due for a purge. Those of lost owners must be requeued. A key whose owner gets the
    /// grace period first is requeued here.
    pub(crate) fn take_due(&mut self, now: Timestamp, most: usize) -> DueKeys {
        let DueKeys { mut freed, mut lost } = DueKeys::default();
        while freed.len() + lost.len() < most
            && let Some(key) = self.next_due(now)
        {
            match self.get(&key).and_then(IndexSlot::record).map(|record| steps::purge(record, now))
            {
                Some(Change::Put(record)) if record.contested => self.update_lease(record),
                Some(Change::Put(record)) => lost.push(record),
                Some(Change::Keep) => {}
                Some(Change::Delete) | None => freed.extend(self.remove(&key)),
            }
        }
        DueKeys { freed, lost }
    }

    /// The next key that is due for a purge at `now`.
    fn next_due(&mut self, now: Timestamp) -> Option<KeyHash> {
        while let Some((at, hash)) = self.due.pop_due(now) {
            let is_queued =
                |slot: &IndexSlot| hash_of(&slot.key) == hash && slot.queued_at == Some(at);
            let Some(slot) = self.table.find_mut(hash, is_queued) else { continue };
            slot.queued_at = None;
            match slot.due_at() {
                Some(due) if due <= now => return Some(slot.key),
                Some(due) => enqueue(&mut self.due, slot, due),
                None => {}
            }
        }
        self.drop_outdated();
        None
    }

    /// Queues a key for when it is due.
    fn requeue(&mut self, key: &KeyHash) {
        if let Some(slot) = self.table.find_mut(hash_of(key), |slot| slot.key == *key) {
            queue(&mut self.due, slot);
        }
    }

    /// Records deleted before their time leave entries in the queue; they must not pile up.
    fn drop_outdated(&mut self) {
        const SLACK: usize = 1024;
        if self.due.len() > 2 * self.table.len() + SLACK {
            self.requeue_all();
        }
    }
}

/// Queues a slot for when it is due, unless it is queued for that time or earlier.
fn queue(due: &mut DueQueue, slot: &mut IndexSlot) {
    if let Some(at) = slot.look_at()
        && slot.queued_at.is_none_or(|queued| at < queued)
    {
        enqueue(due, slot, at);
    }
}

fn enqueue(due: &mut DueQueue, slot: &mut IndexSlot, at: Timestamp) {
    slot.queued_at = Some(at);
    due.push(at, hash_of(&slot.key));
}

impl StateCounts {
    fn count(&mut self, state: State, by: i64) {
        self.records = self.records.saturating_add_signed(by);
        match state {
            State::Unknown => self.unknown = self.unknown.saturating_add_signed(by),
            State::Dead => self.dead = self.dead.saturating_add_signed(by),
            State::Open | State::InProgress | State::Completed | State::Erased => {}
        }
    }
}

/// Key hashes are uniformly distributed: some of their bytes serve as the hash.
fn hash_of(key: &KeyHash) -> u64 {
    bits_of(key.as_bytes())
}

/// Not the first bytes, which choose the shard.
fn bits_of(key: &[u8]) -> u64 {
    key[8..].first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// [`hash_of`] for maps of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl BuildHasher for KeyHasher {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The length of the array is hashed first, as eight bytes.
        if bytes.len() > 16 {
            self.0 = bits_of(bytes);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn shard_of(key: &KeyHash) -> usize {
    usize::from(key.as_bytes()[0]) * SHARDS / 256
}
