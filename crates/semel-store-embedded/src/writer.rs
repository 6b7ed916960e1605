//! The single writer: takes a batch of requests, runs their steps, makes the changes durable, and only then updates the
//! index and sends the replies.

use std::sync::Arc;

use hashbrown::HashMap;

use semel_core::{
    Decision, Error, ErrorKind, Forgetting, KeyHash, Outcome, Policy, Purged, Record, Result,
    State, Timestamp, codec,
    steps::{self, Change, Step},
};
use semel_remote::batch::Batches;

use crate::{
    clock::MonotonicClock,
    compaction::Compaction,
    index::{Index, IndexSlot, KeyHasher},
    log::{BatchDraft, Capacity, Extent, Location, SegmentLog, Segments},
    request::{WriterReply, WriterRequest},
};

/// How many records are purged at once at most.
const PURGED_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) index: Arc<Index>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) log: SegmentLog,
    pub(crate) clock: MonotonicClock,
    pub(crate) compaction: Compaction,
    pub(crate) draft: BatchDraft,
    pending: HashMap<KeyHash, Pending, KeyHasher>,
    capacity: Capacity,
    /// The shard where the last purge stopped.
    purged: usize,
}

/// The change of a key's record in the current batch.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are put, and a box would cost each of them"
)]
enum Pending {
    /// The new record, and its position in the draft.
    Put(Record, Extent),
    Delete,
}

impl Pending {
    const fn record(&self) -> Option<&Record> {
        match self {
            Self::Put(record, _) => Some(record),
            Self::Delete => None,
        }
    }

    /// Applies the change to the index. The draft was written at `base` of `segment`.
    fn show(
        self,
        key: &KeyHash,
        (segment, base): (u32, u32),
        index: &Index,
        compaction: &mut Compaction,
    ) {
        let (erased, freed) = match self {
            Self::Put(record, extent) => {
                let location = Location { segment, extent: extent.behind(base) };
                compaction.used(location);
                (record.state == State::Erased, index.put(IndexSlot::new(location, record)))
            }
            Self::Delete => (false, index.remove(key)),
        };
        if let Some(location) = freed {
            compaction.freed(location);
            if erased {
                compaction.scrub(location);
            }
        }
    }
}

/// The replies of one batch of requests.
#[derive(Debug)]
struct Answers {
    all: Vec<Result<WriterReply>>,
    /// The replies that are true only once the draft is durable.
    on_draft: Vec<usize>,
}

impl LogWriter {
    pub(crate) fn new(
        index: Arc<Index>,
        log: SegmentLog,
        clock: MonotonicClock,
        compaction: Compaction,
    ) -> Self {
        let segments = log.segments();
        let (draft, pending) = (BatchDraft::new(), HashMap::default());
        Self {
            index,
            segments,
            log,
            clock,
            compaction,
            draft,
            pending,
            capacity: Capacity::Enough,
            purged: 0,
        }
    }

    /// Runs until no request can come any more.
    pub(crate) fn run(mut self, mut batches: Batches<WriterRequest, Result<WriterReply>>) {
        while let Some(batch) = batches.take_blocking() {
            batch.reply.send(self.work(batch.calls));
            self.compact();
        }
    }

    /// Handles requests in their order. All changes are durable when this returns.
    pub(crate) fn work(&mut self, calls: Vec<WriterRequest>) -> Vec<Result<WriterReply>> {
        let mut answers = Answers { all: Vec::with_capacity(calls.len()), on_draft: Vec::new() };
        self.capacity = self.log.capacity();
        let now = self.clock.now();
        for call in calls {
            if let WriterRequest::Purge(limit) = call {
                self.commit(&mut answers);
                answers.all.push(self.purge(limit).map(WriterReply::Purge));
                continue;
            }
            let key = key_of(&call);
            let answer = self.step(key, call, now);
            if self.pending.contains_key(&key) {
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

    fn step(&mut self, key: KeyHash, call: WriterRequest, now: Timestamp) -> Result<WriterReply> {
        let found = match self.find(&key, now) {
            // An unreadable record can be forgotten, so that it does not block its key for ever.
            Err(error)
                if error.kind() == ErrorKind::Corrupt
                    && matches!(call, WriterRequest::Forget(_)) =>
            {
                return self.forget_unread(key).map(WriterReply::Forget);
            }
            found => found?,
        };
        let record = found.as_ref();
        Ok(match call {
            WriterRequest::Claim(request) => {
                let step = steps::claim(record, &request, now);
                if self.capacity == Capacity::Low && self.goes_to_disk(record, &step.change) {
                    return Err(no_space());
                }
                WriterReply::Claim(self.draft(key, record, step))
            }
            WriterRequest::Renew(request) => {
                WriterReply::Renew(self.draft(key, record, steps::renew(record, &request, now)))
            }
            WriterRequest::Complete(request) => {
                self.check_size(&request.outcome)?;
                WriterReply::Complete(self.draft(
                    key,
                    record,
                    steps::complete(record, &request, now),
                ))
            }
            WriterRequest::Release(request) => {
                WriterReply::Release(self.draft(key, record, steps::release(record, &request, now)))
            }
            WriterRequest::Abandon(request) => {
                WriterReply::Abandon(self.draft(key, record, steps::abandon(record, &request, now)))
            }
            WriterRequest::Resolve(request) => {
                if let Decision::Complete(outcome) = &request.decision {
                    self.check_size(outcome)?;
                }
                WriterReply::Resolve(self.draft(key, record, steps::resolve(record, &request, now)))
            }
            WriterRequest::Erase(_) => {
                WriterReply::Erase(self.draft(key, record, steps::erase(record, now)))
            }
            WriterRequest::Forget(_) => {
                WriterReply::Forget(self.draft(key, record, steps::forget(record, now)))
            }
            WriterRequest::Purge(_) => unreachable!("purge is no step on one key"),
        })
    }

    /// The engine keeps outcomes below the limit in [`StoreInfo`](semel_core::StoreInfo); other callers may not.
    fn check_size(&self, outcome: &Outcome) -> Result<()> {
        if outcome.size() <= max_outcome(self.log.max_batch()) {
            return Ok(());
        }
        Err(Error::invalid(
            "embedded store: the outcome is larger than a segment takes; omit its body",
        ))
    }

    /// A key's record after the earlier requests of this batch. Expired records are not read.
    fn find(&self, key: &KeyHash, now: Timestamp) -> Result<Option<Record>> {
        if let Some(pending) = self.pending.get(key) {
            return Ok(pending.record().cloned());
        }
        let location = self.index.look(key, |slot| match slot {
            Some(slot) if slot.is_expired(now) => Ok(None),
            Some(slot) => {
                slot.record().map_or(Err(slot.location), |record| Ok(Some(record.clone())))
            }
            None => Ok(None),
        });
        match location {
            Ok(found) => Ok(found),
            Err(location) => {
                read(&self.segments, key, location)?.map_or_else(|| Err(gone()), |r| Ok(Some(r)))
            }
        }
    }

    /// T13 for a record that cannot be read, by its state in the index.
    fn forget_unread(&mut self, key: KeyHash) -> Result<Forgetting> {
        let state = self.index.look(&key, |slot| slot.map(|slot| slot.state));
        match state {
            Some(State::Completed | State::Dead | State::Open) => {
                self.delete(key);
                Ok(Forgetting::Forgotten)
            }
            Some(state) => Ok(Forgetting::Refused(state)),
            None => Ok(Forgetting::Missing),
        }
    }

    /// Adds a step's change to the draft.
    fn draft<A>(&mut self, key: KeyHash, before: Option<&Record>, step: Step<A>) -> A {
        let goes_to_disk = self.goes_to_disk(before, &step.change);
        match step.change {
            Change::Keep => {}
            Change::Put(record) if !goes_to_disk => self.update_lease(key, record),
            Change::Put(record) => self.put(key, record),
            Change::Delete => self.delete(key),
        }
        step.answer
    }

    /// False for a renewed lease, which is kept in memory: its owner ends with the process. A lease that was renewed
    /// for long is written, so that the claim does not expire too early after a restart.
    fn goes_to_disk(&self, before: Option<&Record>, change: &Change) -> bool {
        match change {
            Change::Keep => false,
            Change::Put(after) => match before {
                Some(before) if is_lease_update(before, after) => {
                    self.index.look(&after.key, |slot| {
                        slot.is_some_and(|slot| slot.is_stretched(after.lease_until))
                    })
                }
                _ => true,
            },
            Change::Delete => true,
        }
    }

    /// Updates a lease in memory, also if writing the draft fails.
    fn update_lease(&mut self, key: KeyHash, record: Record) {
        match self.pending.get_mut(&key) {
            Some(Pending::Put(pending, _)) => *pending = record,
            Some(Pending::Delete) | None => self.index.update_lease(record),
        }
    }

    fn put(&mut self, key: KeyHash, record: Record) {
        let extent = self.draft.put(&record);
        self.pending.insert(key, Pending::Put(record, extent));
    }

    fn delete(&mut self, key: KeyHash) {
        self.draft.delete(&key);
        self.pending.insert(key, Pending::Delete);
    }

    /// Makes the draft durable and applies it. If that fails, the replies that depend on it become the error.
    fn commit(&mut self, answers: &mut Answers) {
        if let Err(error) = self.append() {
            answers.on_draft.iter().for_each(|n| answers.all[*n] = Err(error.clone()));
        }
        answers.on_draft.clear();
    }

    /// Makes the draft durable and applies it to the index; drops it on failure.
    fn append(&mut self) -> Result<()> {
        if self.draft.is_empty() {
            return Ok(());
        }
        let appended = self.log.append(&mut self.draft, self.clock.now());
        self.draft.clear();
        match appended {
            Ok(at) => {
                for (key, pending) in self.pending.drain() {
                    pending.show(&key, at, &self.index, &mut self.compaction);
                }
                Ok(())
            }
            Err(error) => {
                self.pending.clear();
                Err(error)
            }
        }
    }

    /// T12 on due keys, shard by shard. An expired record needs no entry in the log: its expiry is in the record, for a
    /// claim not later than in memory. A key that goes on hold needs one.
    fn purge(&mut self, limit: usize) -> Result<Purged> {
        let (now, mut purged, mut lost) = (self.clock.now(), Purged::default(), Vec::new());
        let shards = self.index.shards().count();
        let mut passed = 0;
        while passed < shards && purged.count() + lost.len() < limit {
            let most = (limit - purged.count() - lost.len()).min(PURGED_AT_ONCE);
            let due = self.index.shards_from(None)[self.purged].lock().take_due(now, most);
            purged.deleted += due.freed.len();
            if due.freed.len() + due.lost.len() < most {
                // The next purge starts here, so that a small limit still reaches every shard.
                self.purged = (self.purged + 1) % shards;
                passed += 1;
            }
            due.freed.into_iter().for_each(|location| self.compaction.freed(location));
            for record in due.lost {
                lost.push(record.key);
                self.put(record.key, record);
            }
            if self.draft.len() > self.log.max_batch() / 4 {
                purged.held += self.hold(&mut lost)?;
            }
        }
        purged.held += self.hold(&mut lost)?;
        Ok(purged)
    }

    /// Makes it durable that these keys are on hold. If that fails, they are due again.
    fn hold(&mut self, keys: &mut Vec<KeyHash>) -> Result<usize> {
        let appended = self.append();
        keys.iter().for_each(|key| self.index.requeue(key));
        appended.map(|()| keys.drain(..).count())
    }
}

/// Reads and checks a record. `None` when it has moved.
pub(crate) fn read(
    segments: &Segments,
    key: &KeyHash,
    location: Location,
) -> Result<Option<Record>> {
    segments.read(location)?.map(|bytes| decode(key, &bytes)).transpose()
}

/// Decodes a record, and checks that it belongs to this key.
pub(crate) fn decode(key: &KeyHash, bytes: &bytes::Bytes) -> Result<Record> {
    let record = codec::decode(bytes)?;
    if record.key == *key {
        return Ok(record);
    }
    Err(Error::new(ErrorKind::Corrupt, "embedded store: a record lies where another should be"))
}

/// True when only the lease differs, and with it the expiry of a claim.
fn is_lease_update(before: &Record, after: &Record) -> bool {
    let owner = |record: &Record| (record.nonce, record.token, record.abandoned, record.dirty);
    before.state == State::InProgress
        && after.state == State::InProgress
        && owner(before) == owner(after)
}

/// The largest outcome: its record must fit into the largest batch.
pub(crate) fn max_outcome(max_batch: usize) -> usize {
    (max_batch / 2).min(Policy::MAX_OUTCOME_LIMIT)
}

fn key_of(call: &WriterRequest) -> KeyHash {
    match call {
        WriterRequest::Claim(request) => request.key,
        WriterRequest::Renew(request) => request.owner.key,
        WriterRequest::Complete(request) => request.owner.key,
        WriterRequest::Release(request) => request.owner.key,
        WriterRequest::Abandon(request) => request.owner.key,
        WriterRequest::Resolve(request) => request.key,
        WriterRequest::Erase(key) | WriterRequest::Forget(key) => *key,
        WriterRequest::Purge(_) => unreachable!("purge has no key"),
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
