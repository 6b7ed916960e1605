//! T6–T9: the steps of the owner, which is identified by nonce and token together.

use super::{Step, arm, completed, current, lease_until, live, opened, unknown};
use crate::{
    AbandonRequest, Abandonment, CompleteRequest, Completion, Effect, OnLostOwner, Owner, Record,
    Release, ReleaseRequest, RenewRequest, Renewal, State, Timestamp,
};

/// T6: starts the lease again, unless it is lost, abandoned or older than `max_run`.
#[must_use]
pub fn renew(record: Option<&Record>, request: &RenewRequest, now: Timestamp) -> Step<Renewal> {
    let Some(record) = live(record, now).filter(|record| {
        record.state == State::InProgress
            && is_owner(record, &request.owner)
            && !record.abandoned
            && now.since(record.claimed_at) < request.max_run
    }) else {
        return Step::keep(Renewal::Lost);
    };
    let mut renewed = record.clone();
    arm(&mut renewed, now);
    Step::put(renewed, Renewal::Extended)
}

/// T7: records the outcome, even after the lease has ended, unless another owner took over.
#[must_use]
pub fn complete(
    record: Option<&Record>,
    request: &CompleteRequest,
    now: Timestamp,
) -> Step<Completion> {
    let Some(record) = live(record, now) else { return Step::keep(Completion::Missing) };
    if is_owner(record, &request.owner) {
        match record.state {
            State::InProgress | State::Unknown | State::Dead => {
                return Step::put(completed(record, &request.outcome, now), Completion::Recorded);
            }
            // A repeated call: the first outcome stays.
            State::Completed => return Step::keep(Completion::Recorded),
            State::Open | State::Erased => {}
        }
    }
    Step::keep(Completion::Superseded(current(record, now)))
}

/// T8: releases the key. The nonce stays only to recognise a delayed duplicate of the claim.
#[must_use]
pub fn release(record: Option<&Record>, request: &ReleaseRequest, now: Timestamp) -> Step<Release> {
    let Some(record) = live(record, now) else { return Step::keep(Release::Missing) };
    let releasable = match record.state {
        State::InProgress => true,
        State::Unknown => request.effect == Effect::None,
        State::Open | State::Completed | State::Dead | State::Erased => false,
    };
    if !releasable || !is_owner(record, &request.owner) {
        return Step::keep(Release::Superseded(current(record, now)));
    }
    match (request.effect, record.terms.on_lost_owner) {
        (Effect::None, _) => {
            // The fingerprint is removed only if no earlier attempt may have had an effect.
            let fingerprint = record.fingerprint.filter(|_| record.dirty);
            Step::put(Record { fingerprint, ..opened(record, now) }, Release::Open)
        }
        (Effect::Possible, OnLostOwner::Rerun) => {
            Step::put(Record { dirty: true, ..opened(record, now) }, Release::Open)
        }
        (Effect::Possible, OnLostOwner::Hold) => {
            Step::put(Record { dirty: true, ..unknown(record) }, Release::Unknown)
        }
    }
}

/// T9: the owner does not know whether the work took effect. It may still complete, but not renew.
#[must_use]
pub fn abandon(
    record: Option<&Record>,
    request: &AbandonRequest,
    now: Timestamp,
) -> Step<Abandonment> {
    let Some(record) = live(record, now) else { return Step::keep(Abandonment::Missing) };
    if record.state != State::InProgress || !is_owner(record, &request.owner) {
        return Step::keep(Abandonment::Superseded(current(record, now)));
    }
    match record.terms.on_lost_owner {
        OnLostOwner::Hold => Step::put(unknown(record), Abandonment::Unknown),
        OnLostOwner::Rerun => {
            let mut lapsing = Record { abandoned: true, contested: false, ..record.clone() };
            lease_until(&mut lapsing, now.after(request.backoff));
            Step::put(lapsing, Abandonment::Lapsing)
        }
    }
}

fn is_owner(record: &Record, owner: &Owner) -> bool {
    record.nonce == Some(owner.nonce) && record.token == owner.token
}
