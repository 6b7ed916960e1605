//! The single writer: takes a batch of calls, runs their steps, makes the changes durable, and only
//! then shows and answers them.

use std::sync::Arc;

use hashbrown::HashMap;

use semel_core::{
    Error, ErrorKind, KeyHash, Outcome, Purged, Record, Result, State, Timestamp,
    batch::Batches,
    codec,
    steps::{self, Change, Step},
};

use crate::{
    call::{Call, Said},
    clock::StoreClock,
    index::{ByKey, Index, Slot},
    log::{Draft, Extent, Log, Place, Room, Segments},
    space::Space,
};

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) index: Arc<Index>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) log: Log,
    pub(crate) clock: StoreClock,
    pub(crate) space: Space,
    pub(crate) draft: Draft,
    pending: HashMap<KeyHash, Pending, ByKey>,
    room: Room,
    /// Where the last purge stopped.
    purged: usize,
}

/// What a key's record becomes with this batch.
#[derive(Debug)]
struct Pending {
    record: Option<Record>,
    /// Where the draft has it. A lease that was run anew is not in the draft.
    extent: Option<Extent>,
    durable: bool,
}

impl Pending {
    /// Shows the change in the index; the draft it is in lies at `base` of `segment`.
    fn show(self, key: &KeyHash, (segment, base): (u32, u32), index: &Index, space: &mut Space) {
        let freed = match (self.record, self.extent) {
            (Some(record), Some(extent)) => {
                let place = Place { segment, extent: extent.behind(base) };
                space.used(place);
                index.put(Slot::new(place, record))
            }
            (Some(record), None) => {
                index.rearm(record);
                None
            }
            (None, _) => index.remove(key),
        };
        freed.into_iter().for_each(|place| space.freed(place));
    }
}

/// Answers of one batch of calls.
#[derive(Debug)]
struct Answers {
    all: Vec<Result<Said>>,
    /// Which of them rest on the draft.
    on_draft: Vec<usize>,
}

impl Writer {
    pub(crate) fn new(index: Arc<Index>, log: Log, clock: StoreClock, space: Space) -> Self {
        let segments = log.segments();
        let (draft, pending) = (Draft::new(), HashMap::default());
        Self { index, segments, log, clock, space, draft, pending, room: Room::Plenty, purged: 0 }
    }

    /// Works until there can be no more calls.
    pub(crate) fn run(mut self, mut batches: Batches<Call, Result<Said>>) {
        while let Some(batch) = batches.take_blocking() {
            batch.reply.tell(self.work(batch.calls));
            self.tidy();
        }
    }

    /// Answers calls in their order. All changes are durable when this returns.
    pub(crate) fn work(&mut self, calls: Vec<Call>) -> Vec<Result<Said>> {
        let mut answers = Answers { all: Vec::with_capacity(calls.len()), on_draft: Vec::new() };
        self.room = self.log.room();
        let now = self.clock.now();
        for call in calls {
            if let Call::Purge(limit) = call {
                self.commit(&mut answers);
                answers.all.push(self.purge(limit).map(Said::Purge));
                continue;
            }
            let key = key_of(&call);
            let answer = self.step(key, call, now);
            if self.pending.get(&key).is_some_and(|pending| pending.durable) {
                answers.on_draft.push(answers.all.len());
            }
            answers.all.push(answer);
            if self.draft.len() > self.log.max_batch() / 4 {
                self.commit(&mut answers);
            }
        }
        self.commit(&mut answers);
        answers.all
    }

    fn step(&mut self, key: KeyHash, call: Call, now: Timestamp) -> Result<Said> {
        let found = self.find(&key, now)?;
        let record = found.as_ref();
        Ok(match call {
            Call::Claim(request) => {
                let step = steps::claim(record, &request, now);
                if self.room == Room::Scarce && needs_space(record, &step.change) {
                    return Err(no_space());
                }
                Said::Claim(self.draft(key, record, step))
            }
            Call::Renew(request) => {
                Said::Renew(self.draft(key, record, steps::renew(record, &request, now)))
            }
            Call::Complete(request) => {
                self.check_size(&request.outcome)?;
                Said::Complete(self.draft(key, record, steps::complete(record, &request, now)))
            }
            Call::Release(request) => {
                Said::Release(self.draft(key, record, steps::release(record, &request, now)))
            }
            Call::Abandon(request) => {
                Said::Abandon(self.draft(key, record, steps::abandon(record, &request, now)))
            }
            Call::Resolve(request) => {
                Said::Resolve(self.draft(key, record, steps::resolve(record, &request, now)))
            }
            Call::Erase(_) => Said::Erase(self.draft(key, record, steps::erase(record, now))),
            Call::Forget(_) => Said::Forget(self.draft(key, record, steps::forget(record, now))),
            Call::Purge(_) => unreachable!("purge is no step on one key"),
        })
    }

    /// The engine cuts outcomes to what [`StoreInfo`](semel_core::StoreInfo) says; others may not.
    fn check_size(&self, outcome: &Outcome) -> Result<()> {
        if outcome.size() <= max_outcome(self.log.max_batch()) {
            return Ok(());
        }
        Err(Error::invalid(
            "embedded store: the outcome is larger than a segment takes; omit its body",
        ))
    }

    /// A key's record as the calls before this one left it. Expired ones need not be read.
    fn find(&self, key: &KeyHash, now: Timestamp) -> Result<Option<Record>> {
        if let Some(pending) = self.pending.get(key) {
            return Ok(pending.record.clone());
        }
        let place = self.index.look(key, |slot| match slot {
            Some(slot) if slot.is_expired(now) => Ok(None),
            Some(Slot { record: Some(record), .. }) => Ok(Some(Record::clone(record))),
            Some(slot) => Err(slot.place),
            None => Ok(None),
        });
        match place {
            Ok(found) => Ok(found),
            Err(place) => {
                read(&self.segments, key, place)?.map_or_else(|| Err(gone()), |r| Ok(Some(r)))
            }
        }
    }

    /// Puts a step's change into the draft.
    fn draft<A>(&mut self, key: KeyHash, before: Option<&Record>, step: Step<A>) -> A {
        let needs_space = needs_space(before, &step.change);
        match step.change {
            Change::Keep => {}
            Change::Put(record) if !needs_space => self.rearm(key, record),
            Change::Put(record) => self.put(key, record),
            Change::Delete => self.delete(key),
        }
        step.answer
    }

    /// A renewed lease lives in memory: should the process end, so does its owner.
    fn rearm(&mut self, key: KeyHash, record: Record) {
        match self.pending.get_mut(&key) {
            Some(pending) => pending.record = Some(record),
            None => {
                let pending = Pending { record: Some(record), extent: None, durable: false };
                self.pending.insert(key, pending);
            }
        }
    }

    fn put(&mut self, key: KeyHash, record: Record) {
        let extent = Some(self.draft.put(&record));
        self.pending.insert(key, Pending { record: Some(record), extent, durable: true });
    }

    fn delete(&mut self, key: KeyHash) {
        self.draft.delete(&key);
        self.pending.insert(key, Pending { record: None, extent: None, durable: true });
    }

    /// Makes the draft durable and shows it; what rests on it is answered with the error otherwise.
    fn commit(&mut self, answers: &mut Answers) {
        if let Err(error) = self.append() {
            answers.on_draft.iter().for_each(|n| answers.all[*n] = Err(error.clone()));
        }
        answers.on_draft.clear();
    }

    /// What changed in memory alone is shown even if the draft fails.
    fn append(&mut self) -> Result<()> {
        let appended = match self.draft.is_empty() {
            true => Ok((self.log.active(), 0)),
            false => self.log.append(&mut self.draft, self.clock.now()),
        };
        self.draft.clear();
        let at = *appended.as_ref().unwrap_or(&(0, 0));
        for (key, pending) in self.pending.drain() {
            if appended.is_ok() || !pending.durable {
                pending.show(&key, at, &self.index, &mut self.space);
            }
        }
        appended.map(|_| ())
    }

    /// T12 on what is due. What ended with an outcome or a verdict needs no entry in the log: its
    /// expiry is in its record.
    fn purge(&mut self, limit: usize) -> Result<Purged> {
        let now = self.clock.now();
        let mut purged = Purged::default();
        let mut looked_at = Vec::new();
        let index = self.index.clone();
        let shards = index.shards().count();
        for n in 0..shards {
            let mut shard = index.shards_from(None)[(self.purged + n) % shards].lock();
            while purged.count() < limit
                && let Some(key) = shard.next_due(now)
            {
                match shard.get(&key).and_then(|slot| slot.record.as_deref()) {
                    None => {
                        purged.deleted += 1;
                        shard.remove(&key).into_iter().for_each(|place| self.space.freed(place));
                    }
                    Some(record) => {
                        looked_at.push(key);
                        match steps::purge(record, now) {
                            Change::Keep => {}
                            Change::Put(record) => {
                                purged.held += 1;
                                self.put(key, record);
                            }
                            Change::Delete => {
                                purged.deleted += 1;
                                self.delete(key);
                            }
                        }
                    }
                }
            }
            if purged.count() >= limit {
                self.purged = (self.purged + n) % shards;
                break;
            }
        }
        let done = self.append();
        for key in looked_at {
            self.index.requeue(&key);
        }
        done.map(|()| purged)
    }
}

/// Reads and checks a record. `None` when it has moved.
pub(crate) fn read(segments: &Segments, key: &KeyHash, place: Place) -> Result<Option<Record>> {
    segments.read(place)?.map(|bytes| decode(key, &bytes)).transpose()
}

/// A record that is this key's, or an error.
pub(crate) fn decode(key: &KeyHash, bytes: &bytes::Bytes) -> Result<Record> {
    let record = codec::decode(bytes)?;
    if record.key == *key {
        return Ok(record);
    }
    Err(Error::new(ErrorKind::Corrupt, "embedded store: a record lies where another should be"))
}

/// True for a change that goes to the disk.
fn needs_space(before: Option<&Record>, change: &Change) -> bool {
    match change {
        Change::Keep => false,
        Change::Put(record) => !before.is_some_and(|before| is_rearmed(before, record)),
        Change::Delete => true,
    }
}

/// True when nothing but the lease differs, and with it the expiry of a claim.
fn is_rearmed(before: &Record, after: &Record) -> bool {
    let owner = |record: &Record| (record.nonce, record.token, record.abandoned, record.dirty);
    before.state == State::InProgress
        && after.state == State::InProgress
        && owner(before) == owner(after)
}

/// The largest outcome, given the largest batch: with its record it is one batch at most.
pub(crate) const fn max_outcome(max_batch: usize) -> usize {
    max_batch / 2
}

fn key_of(call: &Call) -> KeyHash {
    match call {
        Call::Claim(request) => request.key,
        Call::Renew(request) => request.owner.key,
        Call::Complete(request) => request.owner.key,
        Call::Release(request) => request.owner.key,
        Call::Abandon(request) => request.owner.key,
        Call::Resolve(request) => request.key,
        Call::Erase(key) | Call::Forget(key) => *key,
        Call::Purge(_) => unreachable!("purge has no key"),
    }
}

fn no_space() -> Error {
    Error::new(
        ErrorKind::Full,
        "embedded store: no space left for new claims; free some on the disk of its folder",
    )
}

pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Corrupt, "embedded store: a record's segment is gone")
}
