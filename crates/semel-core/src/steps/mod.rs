//! The protocol: steps T0–T13 as pure functions.
//!
//! Each takes the record (or `None`), the request and the store's time, and returns how the record changes and the
//! reply. They have no other input, so a store that runs them under a lock per key keeps the protocol, and a model
//! checker can run them too.
//!
//! | step | function | | step | function |
//! |---|---|---|---|---|
//! | T0 | [`Record::is_expired`] | | T9 | [`abandon`] |
//! | T1–T5b | [`claim`] | | T10 | [`resolve`] |
//! | T6 | [`renew`] | | T11 | [`erase`] |
//! | T7 | [`complete`] | | T12 | [`purge`] |
//! | T8 | [`release`] | | T13 | [`forget`] |

mod claim;
mod operator;
mod owner;
mod store_request;

pub use claim::claim;
pub use operator::{erase, forget, purge, resolve};
pub use owner::{abandon, complete, release, renew};
pub use store_request::{PurgeReply, StoreReply, StoreRequest};

use std::sync::Arc;

use crate::{Current, OnLostOwner, Outcome, Record, Replay, State, Timestamp};

/// How a step changes the record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a box would cost every write an allocation")]
pub enum Change {
    /// The record stays as it is.
    Keep,
    /// This record replaces it.
    Put(Record),
    /// The record is deleted.
    Delete,
}

/// The result of a step: the change of the record, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<A> {
    /// How the record changes.
    pub change: Change,
    /// What the caller gets.
    pub answer: A,
}

impl<A> Step<A> {
    const fn keep(answer: A) -> Self {
        Self { change: Change::Keep, answer }
    }

    const fn put(record: Record, answer: A) -> Self {
        Self { change: Change::Put(record), answer }
    }

    const fn delete(answer: A) -> Self {
        Self { change: Change::Delete, answer }
    }
}

/// T0: a record that has expired is absent.
fn live(record: Option<&Record>, now: Timestamp) -> Option<&Record> {
    record.filter(|record| !record.is_expired(now))
}

/// Starts the lease at `now`, and with it the expiry of a claim whose owner never comes back. Ends a contest.
fn arm(record: &mut Record, now: Timestamp) {
    record.contested = false;
    lease_until(record, now.after(record.terms.lease));
}

fn lease_until(record: &mut Record, at: Timestamp) {
    record.lease_until = at;
    record.expires_at = match record.terms.on_lost_owner {
        OnLostOwner::Rerun => Some(at.after(record.terms.retention)),
        OnLostOwner::Hold => None,
    };
}

/// T5a: the owner has the grace period to renew its lease.
fn contested(record: &Record, now: Timestamp) -> Record {
    let mut contested = Record { contested: true, ..record.clone() };
    lease_until(&mut contested, now.after(record.terms.grace_period()));
    contested
}

/// True for a key in progress that may be taken over when its lease is over: its owner was given the grace period, or
/// has abandoned the key.
const fn may_be_taken_over(record: &Record) -> bool {
    record.contested || record.abandoned
}

/// The record waits for an operator, which may take longer than any retention.
fn unknown(record: &Record) -> Record {
    Record { state: State::Unknown, contested: false, expires_at: None, ..record.clone() }
}

fn completed(record: &Record, outcome: &Arc<Outcome>, now: Timestamp) -> Record {
    Record {
        state: State::Completed,
        contested: false,
        outcome: Some(outcome.clone()),
        completed_at: Some(now),
        expires_at: Some(now.after(record.terms.kept(outcome))),
        ..record.clone()
    }
}

fn opened(record: &Record, now: Timestamp) -> Record {
    let expires_at = Some(now.after(record.terms.retention));
    Record { state: State::Open, contested: false, expires_at, ..record.clone() }
}

fn replay(record: &Record, now: Timestamp) -> Replay {
    Replay {
        outcome: record.outcome.clone().expect("a completed record has an outcome"),
        attempt: record.attempts,
        age: now.since(record.completed_at.unwrap_or(now)),
        remaining: record.expires_at.unwrap_or(now).since(now),
        cached: false,
    }
}

fn current(record: &Record, now: Timestamp) -> Current {
    match record.state {
        State::Open => Current::Open,
        State::InProgress => Current::InProgress { remaining: record.lease_until.since(now) },
        State::Completed => Current::Completed(replay(record, now)),
        State::Unknown => Current::Unknown,
        State::Dead => Current::Dead,
        State::Erased => Current::Erased,
    }
}
