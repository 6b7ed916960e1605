//! Runs the steps of all requests for one key on the record that was read, and decides what to write. Pure.
//!
//! All of them happen at the instant of that read, or none does: one compare-and-swap writes the final record.

use semel_core::{
    Claim, KeyHash, Record, State, Timestamp,
    steps::{Change, StoreReply, StoreRequest},
};

use crate::sql_types::RowVersion;

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct StoredRecord {
    pub(crate) record: Record,
    pub(crate) version: RowVersion,
    /// A caller on this or another node waits for the key.
    pub(crate) waited: bool,
}

/// The result of reading one key, with the store's time of the read.
#[derive(Debug)]
pub(crate) struct ReadRecord {
    pub(crate) stored: Option<StoredRecord>,
    pub(crate) now: Timestamp,
}

/// What has to be written before the requests get their replies.
#[derive(Debug)]
pub(crate) enum RecordWrite {
    Nothing,
    /// Only if there is no row.
    Insert(Record),
    /// Only over this version.
    Update(Record, RowVersion, HasWaiters),
    /// Only this version.
    Delete(KeyHash, RowVersion),
    /// Only over this version: note that a caller waits.
    MarkWaited(KeyHash, RowVersion),
}

/// Whether a caller waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasWaiters {
    Yes,
    No,
}

/// What the requests for one key come to.
#[derive(Debug)]
pub(crate) struct KeyDecision {
    pub(crate) replies: Vec<StoreReply>,
    pub(crate) write: RecordWrite,
    /// Other nodes are notified once it is written.
    pub(crate) notify: bool,
}

/// The record between two steps.
enum WorkingRecord<'a> {
    AsRead(Option<&'a Record>),
    Changed(Option<Record>),
}

impl WorkingRecord<'_> {
    const fn record(&self) -> Option<&Record> {
        match self {
            Self::AsRead(record) => *record,
            Self::Changed(record) => record.as_ref(),
        }
    }
}

pub(crate) fn decide<'a>(
    requests: impl Iterator<Item = &'a StoreRequest>,
    read: &ReadRecord,
) -> KeyDecision {
    let stored = read.stored.as_ref();
    let mut working = WorkingRecord::AsRead(stored.map(|stored| &stored.record));
    let (mut replies, mut busy, mut invalidates) = (Vec::new(), false, false);
    for request in requests {
        let step = request.step(working.record(), read.now);
        busy |= matches!(step.answer, StoreReply::Claim(Claim::Busy { .. }));
        match step.change {
            Change::Keep => {}
            Change::Put(record) => working = WorkingRecord::Changed(Some(record)),
            Change::Delete => working = WorkingRecord::Changed(None),
        }
        invalidates |= request.invalidates_copies() && matches!(working, WorkingRecord::Changed(_));
        replies.push(step.answer);
    }
    let waited = busy || stored.is_some_and(|stored| stored.waited);
    let owned = working.record().is_some_and(is_owned);
    let has_waiters = if waited && owned { HasWaiters::Yes } else { HasWaiters::No };
    let write = write(working, stored, has_waiters);
    let notify = invalidates || (waited && !owned && !matches!(write, RecordWrite::Nothing));
    KeyDecision { replies, write, notify }
}

fn write(
    working: WorkingRecord<'_>,
    stored: Option<&StoredRecord>,
    has_waiters: HasWaiters,
) -> RecordWrite {
    match (working, stored) {
        (WorkingRecord::Changed(Some(record)), Some(stored)) => {
            RecordWrite::Update(record, stored.version, has_waiters)
        }
        (WorkingRecord::Changed(Some(record)), None) => RecordWrite::Insert(record),
        (WorkingRecord::Changed(None), Some(stored)) => {
            RecordWrite::Delete(stored.record.key, stored.version)
        }
        (WorkingRecord::AsRead(_), Some(stored))
            if has_waiters == HasWaiters::Yes && !stored.waited =>
        {
            RecordWrite::MarkWaited(stored.record.key, stored.version)
        }
        (WorkingRecord::AsRead(_) | WorkingRecord::Changed(None), _) => RecordWrite::Nothing,
    }
}

/// An owner holds the key. The end of its attempt notifies the waiters.
fn is_owned(record: &Record) -> bool {
    record.state == State::InProgress && !record.abandoned
}
