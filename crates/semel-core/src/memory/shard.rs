//! One shard: a table of records and a queue that says which to look at when.
//!
//! The queue is lazy. Each record has at most one valid entry in it, at or before the time purge
//! has something to do; an entry found too early is put back at the right time.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashTable;

use super::budget::Budget;
use crate::{
    KeyHash, OnLostOwner, Purged, Record, State, Timestamp,
    steps::{self, Change, Step},
};

type Queue = BinaryHeap<Reverse<(Timestamp, u64)>>;

#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Slot>,
    queue: Queue,
    tally: Tally,
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

impl Shard {
    pub(super) fn get(&self, hash: u64, key: &KeyHash) -> Option<&Record> {
        self.table.find(hash, is(key)).map(|slot| &slot.cell.record)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.table.iter().map(|slot| &slot.cell.record)
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Runs one step on one key.
    pub(super) fn step<A>(
        &mut self,
        hash: u64,
        key: &KeyHash,
        budget: &Budget,
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
            Change::Put(record) => replace(slot, record, &mut self.queue, &mut self.tally, budget),
            Change::Delete => self.remove(hash, key, budget),
        }
        Ok(answer)
    }

    /// T12 on what is due, at most `limit` records.
    pub(super) fn purge(&mut self, now: Timestamp, limit: usize, budget: &Budget) -> Purged {
        let mut purged = Purged::default();
        while purged.count() < limit {
            let Some((at, hash)) = pop_due(&mut self.queue, now) else { break };
            let Some(slot) = self.table.find_mut(hash, is_queued(hash, at)) else { continue };
            slot.cell.queued_at = None;
            match steps::purge(&slot.cell.record, now) {
                Change::Keep => requeue(&mut self.queue, slot),
                Change::Put(record) => {
                    replace(slot, record, &mut self.queue, &mut self.tally, budget);
                    purged.held += 1;
                }
                Change::Delete => {
                    let key = slot.cell.record.key;
                    self.remove(hash, &key, budget);
                    purged.deleted += 1;
                }
            }
        }
        purged
    }

    /// Forgets one completed record, the one nearest to expiry among the first few in the queue.
    pub(super) fn evict(&mut self, budget: &Budget) -> bool {
        const LOOK_AT: usize = 64;
        let mut passed = Vec::new();
        let mut evicted = false;
        while !evicted && passed.len() < LOOK_AT {
            let Some(Reverse((at, hash))) = self.queue.pop() else { break };
            let Some(slot) = self.table.find(hash, is_queued(hash, at)) else { continue };
            if slot.cell.record.state == State::Completed {
                let key = slot.cell.record.key;
                self.remove(hash, &key, budget);
                evicted = true;
            } else {
                passed.push(Reverse((at, hash)));
            }
        }
        self.queue.extend(passed);
        evicted
    }

    fn insert(&mut self, hash: u64, record: Record, budget: &Budget) -> Result<(), Full> {
        if !budget.admit(record.size()) {
            return Err(Full);
        }
        self.tally.add(record.state);
        let mut slot = Slot { hash, cell: Box::new(Cell { record, queued_at: None }) };
        queue_earlier(&mut self.queue, &mut slot);
        self.table.insert_unique(hash, slot, |slot| slot.hash);
        Ok(())
    }

    fn remove(&mut self, hash: u64, key: &KeyHash, budget: &Budget) {
        if let Ok(entry) = self.table.find_entry(hash, is(key)) {
            let (slot, _) = entry.remove();
            self.tally.remove(slot.cell.record.state);
            budget.dismiss(slot.cell.record.size());
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

fn replace(
    slot: &mut Slot,
    mut record: Record,
    queue: &mut Queue,
    tally: &mut Tally,
    budget: &Budget,
) {
    let old = slot.cell.record.size();
    if !budget.fits(record.size().saturating_sub(old)) {
        // Bounded, but an operation that is done stays done: only its body is not kept.
        record.outcome = record.outcome.map(|outcome| outcome.within(0));
    }
    budget.resize(old, record.size());
    tally.remove(slot.cell.record.state);
    tally.add(record.state);
    slot.cell.record = record;
    queue_earlier(queue, slot);
}

/// Makes sure the queue wakes up in time for this record.
fn queue_earlier(queue: &mut Queue, slot: &mut Slot) {
    let Some(at) = wake_at(&slot.cell.record) else { return };
    if slot.cell.queued_at.is_none_or(|queued| at < queued) {
        slot.cell.queued_at = Some(at);
        queue.push(Reverse((at, slot.hash)));
    }
}

/// Queues a record that was looked at too early.
fn requeue(queue: &mut Queue, slot: &mut Slot) {
    if let Some(at) = slot.cell.record.due_at() {
        slot.cell.queued_at = Some(at);
        queue.push(Reverse((at, slot.hash)));
    }
}

/// A time that is not after the due time, now or after a completion: one queue entry serves both.
fn wake_at(record: &Record) -> Option<Timestamp> {
    match (record.state, record.terms.on_lost_owner) {
        (State::InProgress, OnLostOwner::Rerun) => {
            Some(record.claimed_at.after(record.terms.retention))
        }
        _ => record.due_at(),
    }
}

fn pop_due(queue: &mut Queue, now: Timestamp) -> Option<(Timestamp, u64)> {
    queue.peek().filter(|Reverse((at, _))| *at <= now)?;
    queue.pop().map(|Reverse(entry)| entry)
}

fn is(key: &KeyHash) -> impl Fn(&Slot) -> bool {
    move |slot| slot.cell.record.key == *key
}

fn is_queued(hash: u64, at: Timestamp) -> impl Fn(&Slot) -> bool {
    move |slot| slot.hash == hash && slot.cell.queued_at == Some(at)
}
