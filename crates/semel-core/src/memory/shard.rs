//! One shard: a table of records, and a queue with the time at which a purge has to check each of them.
//!
//! The queue is lazy. Each record has at most one valid entry in it, at or before the time at which a purge changes the
//! record; an entry that comes too early is queued again for the right time.

use hashbrown::HashTable;

use super::budget::{MemoryBudget, ShardBudget};
use crate::{
    DueQueue, KeyHash, Outcome, Purged, Record, Span, State, Timestamp,
    steps::{self, Change, Step},
};

#[derive(Debug, Default)]
pub(super) struct RecordShard {
    table: HashTable<RecordSlot>,
    books: Bookkeeping,
}

/// What is updated together with the table.
#[derive(Debug, Default)]
struct Bookkeeping {
    queue: DueQueue,
    counts: StateCounts,
    budget: ShardBudget,
}

/// The hash is kept beside the record, so that growing the table does not touch every record.
#[derive(Debug)]
struct RecordSlot {
    hash: u64,
    boxed: Box<QueuedRecord>,
}

#[derive(Debug)]
struct QueuedRecord {
    record: Record,
    queued_at: Option<Timestamp>,
}

/// How many records are in the states that operators watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateCounts {
    pub(super) unknown: u64,
    pub(super) dead: u64,
}

/// The store is full; the step did not happen.
#[derive(Debug)]
pub(super) struct StoreFull;

/// What happens to an outcome that does not fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OversizedOutcome {
    /// The step is refused, so that the store can delete other records first.
    Refuse,
    /// Its body is not kept, but the operation is recorded as done.
    Omit,
}

impl RecordShard {
    pub(super) fn get(&self, hash: u64, key: &KeyHash) -> Option<&Record> {
        self.table.find(hash, has_key(key)).map(|slot| &slot.boxed.record)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.table.iter().map(|slot| &slot.boxed.record)
    }

    pub(super) const fn state_counts(&self) -> StateCounts {
        self.books.counts
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.books.queue.len()
    }

    pub(super) const fn budget(&mut self) -> &mut ShardBudget {
        &mut self.books.budget
    }

    /// Runs one step on one key.
    pub(super) fn step<A>(
        &mut self,
        hash: u64,
        key: &KeyHash,
        (budget, oversized): (&MemoryBudget, OversizedOutcome),
        step: impl FnOnce(Option<&Record>) -> Step<A>,
    ) -> Result<A, StoreFull> {
        let Some(slot) = self.table.find_mut(hash, has_key(key)) else {
            let Step { change, answer } = step(None);
            if let Change::Put(record) = change {
                self.insert(hash, record, budget)?;
            }
            return Ok(answer);
        };
        let Step { change, answer } = step(Some(&slot.boxed.record));
        match change {
            Change::Keep => {}
            Change::Put(record) => self.books.replace(slot, record, budget, oversized)?,
            Change::Delete => self.remove(hash, key, budget),
        }
        Ok(answer)
    }

    /// T12 on the records that are due, `limit` at most. Returns whether more may be due.
    pub(super) fn purge(
        &mut self,
        now: Timestamp,
        limit: usize,
        budget: &MemoryBudget,
    ) -> (Purged, bool) {
        let mut purged = Purged::default();
        for _ in 0..limit {
            let Some((at, hash)) = self.books.queue.pop_due(now) else {
                self.drop_stale_entries();
                return (purged, false);
            };
            let Ok(mut entry) = self.table.find_entry(hash, is_queued(hash, at)) else { continue };
            let slot = entry.get_mut();
            slot.boxed.queued_at = None;
            match steps::purge(&slot.boxed.record, now) {
                Change::Keep => self.books.requeue(slot, now),
                Change::Put(record) => {
                    purged.held += usize::from(record.state == State::Unknown);
                    // The record needs as many bytes as before, so this cannot be refused.
                    let _ = self.books.replace(slot, record, budget, OversizedOutcome::Refuse);
                }
                Change::Delete => {
                    self.books.remove(&entry.remove().0, budget);
                    purged.deleted += 1;
                }
            }
        }
        (purged, true)
    }

    /// Deletes one completed record, the one nearest to expiry among the first few in the queue.
    pub(super) fn evict(&mut self, budget: &MemoryBudget) -> bool {
        const MAX_CHECKED: usize = 64;
        let mut skipped = Vec::new();
        let mut evicted = false;
        while !evicted && skipped.len() < MAX_CHECKED {
            let Some((at, hash)) = self.books.queue.pop() else { break };
            let Ok(entry) = self.table.find_entry(hash, is_queued(hash, at)) else { continue };
            if entry.get().boxed.record.state == State::Completed {
                self.books.remove(&entry.remove().0, budget);
                evicted = true;
            } else {
                skipped.push((at, hash));
            }
        }
        skipped.into_iter().for_each(|(at, hash)| self.books.queue.push(at, hash));
        evicted || self.evict_by_search(budget)
    }

    /// Searches every record, since the queue started with too many that must not be evicted.
    fn evict_by_search(&mut self, budget: &MemoryBudget) -> bool {
        let completed =
            self.table.iter().filter(|slot| slot.boxed.record.state == State::Completed);
        let nearest = completed.min_by_key(|slot| slot.boxed.record.expires_at);
        let found = nearest.map(|slot| (slot.hash, slot.boxed.record.key));
        if let Some((hash, key)) = found {
            self.remove(hash, &key, budget);
        }
        found.is_some()
    }

    fn insert(
        &mut self,
        hash: u64,
        record: Record,
        budget: &MemoryBudget,
    ) -> Result<(), StoreFull> {
        if !self.books.budget.reserve_record(budget, reserved_bytes(&record)) {
            return Err(StoreFull);
        }
        self.books.counts.add(record.state);
        let mut slot =
            RecordSlot { hash, boxed: Box::new(QueuedRecord { record, queued_at: None }) };
        self.books.queue_earlier(&mut slot);
        self.table.insert_unique(hash, slot, |slot| slot.hash);
        Ok(())
    }

    fn remove(&mut self, hash: u64, key: &KeyHash, budget: &MemoryBudget) {
        if let Ok(entry) = self.table.find_entry(hash, has_key(key)) {
            self.books.remove(&entry.remove().0, budget);
            self.drop_stale_entries();
        }
    }

    /// Records that are deleted before they are due leave entries in the queue. This removes them.
    fn drop_stale_entries(&mut self) {
        const SLACK: usize = 64;
        if self.books.queue.len() > 2 * self.table.len() + SLACK {
            self.books.queue = DueQueue::default();
            for slot in self.table.iter().filter(|slot| slot.boxed.queued_at.is_some()) {
                self.books.queue.push(slot.boxed.queued_at.unwrap_or_default(), slot.hash);
            }
        }
    }
}

impl Bookkeeping {
    /// Replaces a record, or changes nothing.
    fn replace(
        &mut self,
        slot: &mut RecordSlot,
        mut record: Record,
        budget: &MemoryBudget,
        oversized: OversizedOutcome,
    ) -> Result<(), StoreFull> {
        let reserved = reserved_bytes(&slot.boxed.record);
        let mut needed = reserved_bytes(&record);
        if needed > reserved && !self.budget.grow(budget, needed - reserved) {
            if oversized == OversizedOutcome::Refuse {
                return Err(StoreFull);
            }
            // The claim has reserved the bytes of an outcome without its body.
            record.outcome = Some(record.outcome.ok_or(StoreFull)?.within(0));
            needed = reserved_bytes(&record);
            if needed > reserved && !self.budget.grow(budget, needed - reserved) {
                return Err(StoreFull);
            }
        }
        self.budget.shrink(budget, reserved.saturating_sub(needed));
        self.counts.remove(slot.boxed.record.state);
        self.counts.add(record.state);
        slot.boxed.record = record;
        self.queue_earlier(slot);
        Ok(())
    }

    /// The record was removed from the table.
    fn remove(&mut self, slot: &RecordSlot, budget: &MemoryBudget) {
        self.counts.remove(slot.boxed.record.state);
        self.budget.return_record(budget, reserved_bytes(&slot.boxed.record));
    }

    /// Makes sure that the queue has an entry in time for this record.
    fn queue_earlier(&mut self, slot: &mut RecordSlot) {
        let Some(at) = slot.boxed.record.look_at() else { return };
        if slot.boxed.queued_at.is_none_or(|queued| at < queued) {
            slot.boxed.queued_at = Some(at);
            self.queue.push(at, slot.hash);
        }
    }

    /// Queues a record that was checked too early. Never for now, since the same purge would check it again.
    fn requeue(&mut self, slot: &mut RecordSlot, now: Timestamp) {
        if let Some(due) = slot.boxed.record.due_at() {
            let at = due.max(now.after(Span::from_millis(1)));
            slot.boxed.queued_at = Some(at);
            self.queue.push(at, slot.hash);
        }
    }
}

impl StateCounts {
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

/// The bytes that are reserved for a record: its size, and the size of the outcome that it may still get. It depends on
/// nothing else, so that the same number is returned later.
fn reserved_bytes(record: &Record) -> usize {
    let for_outcome = match record.state {
        State::InProgress | State::Unknown | State::Dead => Outcome::MAX_CUT_BYTES,
        State::Open | State::Completed | State::Erased => 0,
    };
    record.size() + for_outcome
}

fn has_key(key: &KeyHash) -> impl Fn(&RecordSlot) -> bool {
    move |slot| slot.boxed.record.key == *key
}

fn is_queued(hash: u64, at: Timestamp) -> impl Fn(&RecordSlot) -> bool {
    move |slot| slot.hash == hash && slot.boxed.queued_at == Some(at)
}
