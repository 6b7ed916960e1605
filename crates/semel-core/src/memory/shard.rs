//! One shard: a table of records and a queue that says which to look at when.
//!
//! The queue is lazy. Each record has at most one valid entry in it, at or before the time purge
//! has something to do; an entry found too early is put back at the right time.

use hashbrown::HashTable;

use super::budget::{Budget, Purse};
use crate::{
    DueQueue, KeyHash, Outcome, Purged, Record, Span, State, Timestamp,
    steps::{self, Change, Step},
};

#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Slot>,
    books: Books,
}

/// What has to be kept in step with the table.
#[derive(Debug, Default)]
struct Books {
    queue: DueQueue,
    tally: Tally,
    purse: Purse,
}

/// The hash is kept beside the record, so that growing the table does not touch every record.
#[derive(Debug)]
struct Slot {
    hash: u64,
    cell: Box<Cell>,
}

#[derive(Debug)]
struct Cell {
    record: Record,
    queued_at: Option<Timestamp>,
}

/// How many records are in the states operators watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) unknown: u64,
    pub(super) dead: u64,
}

/// The store is at its bound; the step did not happen.
#[derive(Debug)]
pub(super) struct Full;

/// What becomes of an outcome for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outsize {
    /// The step is refused, so that the store can make room.
    Refuse,
    /// Its body is not kept. An operation that is done stays done.
    Omit,
}

impl Shard {
    pub(super) fn get(&self, hash: u64, key: &KeyHash) -> Option<&Record> {
        self.table.find(hash, is(key)).map(|slot| &slot.cell.record)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.table.iter().map(|slot| &slot.cell.record)
    }

    pub(super) const fn tally(&self) -> Tally {
        self.books.tally
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.books.queue.len()
    }

    pub(super) const fn purse(&mut self) -> &mut Purse {
        &mut self.books.purse
    }

    /// Runs one step on one key.
    pub(super) fn step<A>(
        &mut self,
        hash: u64,
        key: &KeyHash,
        (budget, outsize): (&Budget, Outsize),
        step: impl FnOnce(Option<&Record>) -> Step<A>,
    ) -> Result<A, Full> {
        let Some(slot) = self.table.find_mut(hash, is(key)) else {
            let Step { change, answer } = step(None);
            if let Change::Put(record) = change {
                self.insert(hash, record, budget)?;
            }
            return Ok(answer);
        };
        let Step { change, answer } = step(Some(&slot.cell.record));
        match change {
            Change::Keep => {}
            Change::Put(record) => self.books.replace(slot, record, budget, outsize)?,
            Change::Delete => self.remove(hash, key, budget),
        }
        Ok(answer)
    }

    /// T12 on what is due. Looks at no more than `limit` records; says whether more may be due.
    pub(super) fn purge(
        &mut self,
        now: Timestamp,
        limit: usize,
        budget: &Budget,
    ) -> (Purged, bool) {
        let mut purged = Purged::default();
        for _ in 0..limit {
            let Some((at, hash)) = self.books.queue.pop_due(now) else {
                self.drop_stale_entries();
                return (purged, false);
            };
            let Ok(mut entry) = self.table.find_entry(hash, is_queued(hash, at)) else { continue };
            let slot = entry.get_mut();
            slot.cell.queued_at = None;
            match steps::purge(&slot.cell.record, now) {
                Change::Keep => self.books.requeue(slot, now),
                Change::Put(record) => {
                    // An Unknown record takes up what it did before: there is nothing to refuse.
                    let _ = self.books.replace(slot, record, budget, Outsize::Refuse);
                    purged.held += 1;
                }
                Change::Delete => {
                    self.books.strike(&entry.remove().0, budget);
                    purged.deleted += 1;
                }
            }
        }
        (purged, true)
    }

    /// Forgets one completed record, the one nearest to expiry among the first few in the queue.
    pub(super) fn evict(&mut self, budget: &Budget) -> bool {
        const LOOK_AT: usize = 64;
        let mut passed = Vec::new();
        let mut evicted = false;
        while !evicted && passed.len() < LOOK_AT {
            let Some((at, hash)) = self.books.queue.pop() else { break };
            let Ok(entry) = self.table.find_entry(hash, is_queued(hash, at)) else { continue };
            if entry.get().cell.record.state == State::Completed {
                self.books.strike(&entry.remove().0, budget);
                evicted = true;
            } else {
                passed.push((at, hash));
            }
        }
        passed.into_iter().for_each(|(at, hash)| self.books.queue.push(at, hash));
        evicted || self.evict_by_search(budget)
    }

    /// Looks at every record: the queue began with too many that must not be evicted.
    fn evict_by_search(&mut self, budget: &Budget) -> bool {
        let completed = self.table.iter().filter(|slot| slot.cell.record.state == State::Completed);
        let nearest = completed.min_by_key(|slot| slot.cell.record.expires_at);
        let found = nearest.map(|slot| (slot.hash, slot.cell.record.key));
        if let Some((hash, key)) = found {
            self.remove(hash, &key, budget);
        }
        found.is_some()
    }

    fn insert(&mut self, hash: u64, record: Record, budget: &Budget) -> Result<(), Full> {
        if !self.books.purse.admit(budget, price(&record)) {
            return Err(Full);
        }
        self.books.tally.add(record.state);
        let mut slot = Slot { hash, cell: Box::new(Cell { record, queued_at: None }) };
        self.books.queue_earlier(&mut slot);
        self.table.insert_unique(hash, slot, |slot| slot.hash);
        Ok(())
    }

    fn remove(&mut self, hash: u64, key: &KeyHash, budget: &Budget) {
        if let Ok(entry) = self.table.find_entry(hash, is(key)) {
            self.books.strike(&entry.remove().0, budget);
            self.drop_stale_entries();
        }
    }

    /// Records deleted before their time leave entries in the queue; they must not pile up.
    fn drop_stale_entries(&mut self) {
        const SLACK: usize = 64;
        if self.books.queue.len() > 2 * self.table.len() + SLACK {
            self.books.queue = DueQueue::default();
            for slot in self.table.iter().filter(|slot| slot.cell.queued_at.is_some()) {
                self.books.queue.push(slot.cell.queued_at.unwrap_or_default(), slot.hash);
            }
        }
    }
}

impl Books {
    /// Puts a new record in the place of an old one, or changes nothing.
    fn replace(
        &mut self,
        slot: &mut Slot,
        mut record: Record,
        budget: &Budget,
        outsize: Outsize,
    ) -> Result<(), Full> {
        let paid = price(&slot.cell.record);
        let mut due = price(&record);
        if due > paid && !self.purse.grow(budget, due - paid) {
            if outsize == Outsize::Refuse {
                return Err(Full);
            }
            // For an outcome without its body, the claim has paid.
            record.outcome = Some(record.outcome.ok_or(Full)?.within(0));
            due = price(&record);
            if due > paid && !self.purse.grow(budget, due - paid) {
                return Err(Full);
            }
        }
        self.purse.shrink(budget, paid.saturating_sub(due));
        self.tally.remove(slot.cell.record.state);
        self.tally.add(record.state);
        slot.cell.record = record;
        self.queue_earlier(slot);
        Ok(())
    }

    /// The record is off the table.
    fn strike(&mut self, slot: &Slot, budget: &Budget) {
        self.tally.remove(slot.cell.record.state);
        self.purse.dismiss(budget, price(&slot.cell.record));
    }

    /// Makes sure the queue wakes up in time for this record.
    fn queue_earlier(&mut self, slot: &mut Slot) {
        let Some(at) = slot.cell.record.look_at() else { return };
        if slot.cell.queued_at.is_none_or(|queued| at < queued) {
            slot.cell.queued_at = Some(at);
            self.queue.push(at, slot.hash);
        }
    }

    /// Queues a record that was looked at too early. Never for now: purge would meet it again.
    fn requeue(&mut self, slot: &mut Slot, now: Timestamp) {
        if let Some(due) = slot.cell.record.due_at() {
            let at = due.max(now.after(Span::from_millis(1)));
            slot.cell.queued_at = Some(at);
            self.queue.push(at, slot.hash);
        }
    }
}

impl Tally {
    fn add(&mut self, state: State) {
        match state {
            State::Unknown => self.unknown += 1,
            State::Dead => self.dead += 1,
            State::Open | State::InProgress | State::Completed | State::Erased => {}
        }
    }

    fn remove(&mut self, state: State) {
        match state {
            State::Unknown => self.unknown -= 1,
            State::Dead => self.dead -= 1,
            State::Open | State::InProgress | State::Completed | State::Erased => {}
        }
    }
}

/// What is paid for a record from its first byte to its last: what it takes up, with room for the
/// outcome it may still get. It depends on nothing else, so what is given back is what was paid.
fn price(record: &Record) -> usize {
    let room = match record.state {
        State::InProgress | State::Unknown | State::Dead => Outcome::MAX_CUT_BYTES,
        State::Open | State::Completed | State::Erased => 0,
    };
    record.size() + room
}

fn is(key: &KeyHash) -> impl Fn(&Slot) -> bool {
    move |slot| slot.cell.record.key == *key
}

fn is_queued(hash: u64, at: Timestamp) -> impl Fn(&Slot) -> bool {
    move |slot| slot.hash == hash && slot.cell.queued_at == Some(at)
}
