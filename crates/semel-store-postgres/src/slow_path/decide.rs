//! Runs the calls for one key, in their order, on the record as it was read. Pure.
//!
//! They all happen at the instant of that read, or none does: one compare-and-swap writes what is left
//! in the end.

use semel_core::{
    Claim, KeyHash, Record, State, Timestamp,
    steps::{Change, StoreReply, StoreRequest},
};

use crate::sql_types::Version;

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) record: Record,
    pub(crate) version: Version,
    /// Somebody on this or another node waits for the key.
    pub(crate) waited: bool,
}

/// How a key stood, by the store's clock.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seen: Option<Seen>,
    pub(crate) now: Timestamp,
}

/// What has to be written before the calls may be answered.
#[derive(Debug)]
pub(crate) enum Write {
    Nothing,
    /// Only if there is no row.
    Insert(Record),
    /// Only over this version.
    Update(Record, Version, Waited),
    /// Only this version.
    Delete(KeyHash, Version),
    /// Only over this version: somebody waits.
    Mark(KeyHash, Version),
}

/// Whether somebody waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Yes,
    No,
}

/// What the calls for one key come to.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) said: Vec<StoreReply>,
    pub(crate) write: Write,
    /// Others are to hear of it once it is written.
    pub(crate) ring: bool,
}

/// The record while the calls go on.
enum Standing<'a> {
    AsRead(Option<&'a Record>),
    Changed(Option<Record>),
}

impl Standing<'_> {
    const fn record(&self) -> Option<&Record> {
        match self {
            Self::AsRead(record) => *record,
            Self::Changed(record) => record.as_ref(),
        }
    }
}

pub(crate) fn chain<'a>(calls: impl Iterator<Item = &'a StoreRequest>, found: &Found) -> Chain {
    let seen = found.seen.as_ref();
    let mut standing = Standing::AsRead(seen.map(|seen| &seen.record));
    let (mut all, mut busy, mut operators) = (Vec::new(), false, false);
    for call in calls {
        let step = call.step(standing.record(), found.now);
        busy |= matches!(step.answer, StoreReply::Claim(Claim::Busy { .. }));
        match step.change {
            Change::Keep => {}
            Change::Put(record) => standing = Standing::Changed(Some(record)),
            Change::Delete => standing = Standing::Changed(None),
        }
        operators |= call.invalidates_copies() && matches!(standing, Standing::Changed(_));
        all.push(step.answer);
    }
    let waited = busy || seen.is_some_and(|seen| seen.waited);
    let owned = standing.record().is_some_and(is_owned);
    let write = write(standing, seen, if waited && owned { Waited::Yes } else { Waited::No });
    let ring = operators || (waited && !owned && !matches!(write, Write::Nothing));
    Chain { said: all, write, ring }
}

fn write(standing: Standing<'_>, seen: Option<&Seen>, waited: Waited) -> Write {
    match (standing, seen) {
        (Standing::Changed(Some(record)), Some(seen)) => {
            Write::Update(record, seen.version, waited)
        }
        (Standing::Changed(Some(record)), None) => Write::Insert(record),
        (Standing::Changed(None), Some(seen)) => Write::Delete(seen.record.key, seen.version),
        (Standing::AsRead(_), Some(seen)) if waited == Waited::Yes && !seen.waited => {
            Write::Mark(seen.record.key, seen.version)
        }
        (Standing::AsRead(_) | Standing::Changed(None), _) => Write::Nothing,
    }
}

/// Somebody is at work, and will say so when it is done.
fn is_owned(record: &Record) -> bool {
    record.state == State::InProgress && !record.abandoned
}
