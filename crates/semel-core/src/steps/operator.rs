//! T10–T13: the steps of operators and of cleanup.

use super::{
    Change, Step, completed, contested, current, live, may_be_taken_over, opened, unknown,
};
use crate::{
    Decision, Effect, Erasure, Forgetting, OnLostOwner, Record, Resolution, ResolveRequest, State,
    Timestamp,
};

/// T10: decides a stuck key, if its record is still the one that the operator saw.
#[must_use]
pub fn resolve(
    record: Option<&Record>,
    request: &ResolveRequest,
    now: Timestamp,
) -> Step<Resolution> {
    let Some(record) = live(record, now) else { return Step::keep(Resolution::Missing) };
    let stuck = match record.state {
        State::Unknown | State::Dead => true,
        // The grace period of a contested key is a lease, too.
        State::InProgress => !record.is_leased(now),
        State::Open | State::Completed | State::Erased => false,
    };
    let as_seen = (record.nonce, record.token) == (request.seen_nonce, request.seen_token);
    if !stuck || !as_seen {
        return Step::keep(Resolution::Refused(current(record, now)));
    }
    let resolved = match &request.decision {
        Decision::Complete(outcome) => completed(record, outcome, now),
        Decision::Reopen(effect) => Record {
            attempts: 0,
            dirty: true,
            fingerprint: record.fingerprint.filter(|_| *effect == Effect::Possible),
            ..opened(record, now)
        },
    };
    // The former owner must not match the record any more.
    Step::put(Record { nonce: None, ..resolved }, Resolution::Done)
}

/// T11: removes the content of the record and keeps a tombstone, so that a duplicate does not run.
#[must_use]
pub fn erase(record: Option<&Record>, now: Timestamp) -> Step<Erasure> {
    let Some(record) = live(record, now) else { return Step::keep(Erasure::Missing) };
    let tombstone = Record {
        state: State::Erased,
        contested: false,
        fingerprint: None,
        nonce: None,
        outcome: None,
        labels: None,
        expires_at: Some(now.after(record.terms.retention)),
        ..record.clone()
    };
    Step::put(tombstone, Erasure::Erased)
}

/// T12: how cleanup changes this record now. In hold mode it takes two steps as a claim does: the owner of a lapsed
/// lease gets the grace period before its key becomes Unknown.
#[must_use]
pub fn purge(record: &Record, now: Timestamp) -> Change {
    if record.is_expired(now) {
        return Change::Delete;
    }
    let lost = record.state == State::InProgress && !record.is_leased(now);
    match record.terms.on_lost_owner {
        OnLostOwner::Hold if lost && may_be_taken_over(record) => Change::Put(unknown(record)),
        OnLostOwner::Hold if lost => Change::Put(contested(record, now)),
        OnLostOwner::Hold | OnLostOwner::Rerun => Change::Keep,
    }
}

/// T13: deletes a record that has no owner, and whose loss cannot hide an effect that is under way.
#[must_use]
pub fn forget(record: Option<&Record>, now: Timestamp) -> Step<Forgetting> {
    let Some(record) = live(record, now) else { return Step::keep(Forgetting::Missing) };
    match record.state {
        State::Completed | State::Dead | State::Open => Step::delete(Forgetting::Forgotten),
        State::InProgress | State::Unknown | State::Erased => {
            Step::keep(Forgetting::Refused(record.state))
        }
    }
}
