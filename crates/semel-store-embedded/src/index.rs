//! The index: for each key where its record is, and what is due when.
//!
//! It shows what is durable and nothing else: the writer applies a batch after it was synced. Only
//! records in progress are in memory as a whole; most renewals change them there and nowhere else,
//! since an owner does not outlive the process.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use parking_lot::Mutex;
use semel_core::{
    DueQueue, KeyHash, Record, State, Timestamp,
    codec::Peek,
    steps::{self, Change},
};

use crate::log::{Found, Place};

/// Shards are chosen by the first bits of the key's hash, so that their order is the keys' order.
const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    table: HashTable<Slot>,
    due: DueQueue,
    tally: Tally,
}

/// How many records are in the states operators watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) records: u64,
    pub(crate) unknown: u64,
    pub(crate) dead: u64,
}

/// What is known of one key.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: KeyHash,
    pub(crate) place: Place,
    pub(crate) state: State,
    pub(crate) expires_at: Option<Timestamp>,
    queued_at: Option<Timestamp>,
    /// Of a key in progress.
    held: Option<Box<Held>>,
}

/// A record in memory.
#[derive(Debug)]
struct Held {
    record: Record,
    /// The end of its lease as it is on the disk.
    written_until: Timestamp,
}

/// What purge found to do.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Where records were that have expired. They are forgotten.
    pub(crate) freed: Vec<Place>,
    /// What records of lost owners become. They are not changed yet.
    pub(crate) lost: Vec<Record>,
}

impl Slot {
    pub(crate) fn new(place: Place, record: Record) -> Self {
        let (key, state, expires_at) = (record.key, record.state, record.expires_at);
        let written_until = record.lease_until;
        let held = || Box::new(Held { record, written_until });
        let held = (state == State::InProgress).then(held);
        Self { key, place, state, expires_at, queued_at: None, held }
    }

    /// A record that was found on disk.
    pub(crate) const fn found(place: Place, Peek { key, state, expires_at }: Peek) -> Self {
        Self { key, place, state, expires_at, queued_at: None, held: None }
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The record, if it is in memory.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.held.as_ref().map(|held| &held.record)
    }

    /// From when on the record counts as absent after a restart: renewals are not on the disk.
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

    /// `None` for a claim found on disk: its lease is not known yet.
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

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter()
    }

    /// The shards that hold keys after `key`, in order.
    pub(crate) fn shards_from(&self, key: Option<&KeyHash>) -> &[Mutex<Shard>] {
        &self.shards[key.map_or(0, shard_of)..]
    }

    /// Shows the slot of a key to `look`, under its shard's lock.
    pub(crate) fn look<T>(&self, key: &KeyHash, look: impl FnOnce(Option<&Slot>) -> T) -> T {
        look(self.shard(key).lock().get(key))
    }

    /// Puts a record in its place; says which place it had.
    pub(crate) fn put(&self, slot: Slot) -> Option<Place> {
        self.shard(&slot.key).lock().put(slot)
    }

    /// Takes in entries of the log, oldest first, shard by shard: one shard's table stays in the
    /// processor's cache, the whole index does not.
    pub(crate) fn load(&self, found: Vec<Found>) {
        let mut by_shard: Vec<Vec<Found>> = vec![Vec::new(); SHARDS];
        for found in found {
            let (Found::Put(_, Peek { key, .. }) | Found::Delete(key)) = found;
            by_shard[shard_of(&key)].push(found);
        }
        for (shard, found) in self.shards.iter().zip(by_shard) {
            let mut shard = shard.lock();
            for found in found {
                match found {
                    Found::Put(place, peek) => shard.put(Slot::found(place, peek)),
                    Found::Delete(key) => shard.remove(&key),
                };
            }
        }
    }

    /// Forgets a key; says which place its record had.
    pub(crate) fn remove(&self, key: &KeyHash) -> Option<Place> {
        self.shard(key).lock().remove(key)
    }

    /// Changes a record in progress where it lies: its lease, which is in memory only.
    pub(crate) fn rearm(&self, record: Record) {
        self.shard(&record.key).lock().rearm(record);
    }

    /// Tells a key's new place, if its record still is at `from`.
    pub(crate) fn relocate(&self, key: &KeyHash, from: Place, to: Place) -> bool {
        let mut shard = self.shard(key).lock();
        let slot = shard.table.find_mut(hash_of(key), |slot| slot.key == *key);
        slot.filter(|slot| slot.place == from).map(|slot| slot.place = to).is_some()
    }

    /// Looks at a key again when it is due.
    pub(crate) fn requeue(&self, key: &KeyHash) {
        self.shard(key).lock().requeue(key);
    }

    pub(crate) fn tally(&self) -> Tally {
        self.shards.iter().map(|shard| shard.lock().tally).fold(Tally::default(), |sum, tally| {
            Tally {
                records: sum.records + tally.records,
                unknown: sum.unknown + tally.unknown,
                dead: sum.dead + tally.dead,
            }
        })
    }

    fn shard(&self, key: &KeyHash) -> &Mutex<Shard> {
        &self.shards[shard_of(key)]
    }
}

impl Shard {
    pub(crate) fn get(&self, key: &KeyHash) -> Option<&Slot> {
        self.table.find(hash_of(key), |slot| slot.key == *key)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.table.iter()
    }

    /// The keys in progress, and where their records are.
    pub(crate) fn in_progress(&self) -> Vec<(KeyHash, Place)> {
        let slots = self.slots().filter(|slot| slot.state == State::InProgress);
        slots.map(|slot| (slot.key, slot.place)).collect()
    }

    fn put(&mut self, mut slot: Slot) -> Option<Place> {
        let hash = hash_of(&slot.key);
        self.tally.count(slot.state, 1);
        let Some(present) = self.table.find_mut(hash, |present| present.key == slot.key) else {
            queue(&mut self.due, &mut slot);
            self.table.insert_unique(hash, slot, |slot| hash_of(&slot.key));
            return None;
        };
        slot.queued_at = present.queued_at;
        queue(&mut self.due, &mut slot);
        let before = std::mem::replace(present, slot);
        self.tally.count(before.state, -1);
        Some(before.place)
    }

    /// Forgets the slots that `keep` does not name.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Slot) -> bool) {
        let tally = &mut self.tally;
        self.table.retain(|slot| {
            let kept = keep(slot);
            if !kept {
                tally.count(slot.state, -1);
            }
            kept
        });
    }

    fn remove(&mut self, key: &KeyHash) -> Option<Place> {
        let entry = self.table.find_entry(hash_of(key), |slot| slot.key == *key).ok()?;
        let (slot, _) = entry.remove();
        self.tally.count(slot.state, -1);
        Some(slot.place)
    }

    pub(crate) fn rearm(&mut self, record: Record) {
        let slot = self.table.find_mut(hash_of(&record.key), |slot| slot.key == record.key);
        if let Some(slot) = slot {
            slot.expires_at = record.expires_at;
            match &mut slot.held {
                Some(held) => held.record = record,
                None => {
                    let written_until = record.lease_until;
                    slot.held = Some(Box::new(Held { record, written_until }));
                }
            }
            queue(&mut self.due, slot);
        }
    }

    /// Queues every slot anew.
    fn requeue_all(&mut self) {
        self.due = DueQueue::default();
        let mut slots: Vec<&mut Slot> = self.table.iter_mut().collect();
        slots.sort_unstable_by_key(|slot| slot.due_at());
        for slot in slots {
            slot.queued_at = None;
            queue(&mut self.due, slot);
        }
    }

    /// Takes up to `most` keys that purge has to do with. Those of lost owners must be requeued.
    pub(crate) fn take_due(&mut self, now: Timestamp, most: usize) -> Due {
        let Due { mut freed, mut lost } = Due::default();
        while freed.len() + lost.len() < most
            && let Some(key) = self.next_due(now)
        {
            match self.get(&key).and_then(Slot::record).map(|record| steps::purge(record, now)) {
                Some(Change::Put(record)) => lost.push(record),
                Some(Change::Keep) => {}
                Some(Change::Delete) | None => freed.extend(self.remove(&key)),
            }
        }
        Due { freed, lost }
    }

    /// The next key that purge has to do with at `now`.
    fn next_due(&mut self, now: Timestamp) -> Option<KeyHash> {
        while let Some((at, hash)) = self.due.pop_due(now) {
            let is_queued = |slot: &Slot| hash_of(&slot.key) == hash && slot.queued_at == Some(at);
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

    /// Looks at a key again, the sooner the better.
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

/// Makes sure the queue comes to this slot in time.
fn queue(due: &mut DueQueue, slot: &mut Slot) {
    if let Some(at) = slot.look_at()
        && slot.queued_at.is_none_or(|queued| at < queued)
    {
        enqueue(due, slot, at);
    }
}

fn enqueue(due: &mut DueQueue, slot: &mut Slot, at: Timestamp) {
    slot.queued_at = Some(at);
    due.push(at, hash_of(&slot.key));
}

impl Tally {
    fn count(&mut self, state: State, by: i64) {
        self.records = self.records.saturating_add_signed(by);
        match state {
            State::Unknown => self.unknown = self.unknown.saturating_add_signed(by),
            State::Dead => self.dead = self.dead.saturating_add_signed(by),
            State::Open | State::InProgress | State::Completed | State::Erased => {}
        }
    }
}

/// Keys are keyed hashes already: their bits are as good as any.
fn hash_of(key: &KeyHash) -> u64 {
    bits_of(key.as_bytes())
}

/// Not the first ones, which choose the shard.
fn bits_of(key: &[u8]) -> u64 {
    key[8..].first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// [`hash_of`] for maps of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByKey(u64);

impl BuildHasher for ByKey {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for ByKey {
    fn write(&mut self, bytes: &[u8]) {
        // The length comes first, in eight bytes of its own.
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
