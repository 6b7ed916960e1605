//! T1–T5b: the claim.

use super::{Step, arm, contested, live, may_be_taken_over, replay, unknown};
use crate::{
    Claim, ClaimRequest, Lease, Nonce, OnLostOwner, Owner, Record, State, Terms, Timestamp,
};

/// T1–T5b: grants the key, or replies with its state. The record's terms decide, never those of the claim.
///
/// A key that becomes Dead on a claim after a release has no owner. Its record gets the claim's nonce with every bit
/// flipped.
#[must_use]
pub fn claim(record: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> Step<Claim> {
    let Some(record) = live(record, now) else {
        return granted(first(request, now), Takeover::No);
    };
    // T3 comes before the state: a key reused with another fingerprint is a mismatch in every state.
    if record.fingerprint.is_some_and(|pinned| pinned != request.fingerprint) {
        return Step::keep(Claim::Mismatch);
    }
    let mine = record.nonce == Some(request.nonce);
    match record.state {
        State::Open if mine => Step::keep(Claim::Released),
        State::Open if out_of_attempts(record) => died_released(record, request.nonce, now),
        State::Open => granted(next(record, request, now), Takeover::No),
        // A delayed duplicate of an abandoned claim must not revive it, not even after the lease.
        State::InProgress if mine && record.abandoned => busy(record, now),
        State::InProgress if mine => granted(rearmed(record, now), Takeover::No),
        State::InProgress if record.is_leased(now) => busy(record, now),
        State::InProgress if may_be_taken_over(record) => lapsed(record, request, now),
        State::InProgress => contest(record, now),
        State::Completed => Step::keep(Claim::Replay(replay(record, now))),
        State::Unknown => Step::keep(Claim::Unknown),
        State::Dead => Step::keep(Claim::Dead),
        State::Erased => Step::keep(Claim::Gone),
    }
}

/// T5a: the lease is over. A store that did not answer for a while may process this claim before the renewal or the
/// completion of an owner that is alive, so the owner gets a grace period in which it can be heard.
fn contest(record: &Record, now: Timestamp) -> Step<Claim> {
    let contested = contested(record, now);
    let remaining = contested.lease_until.since(now);
    Step::put(contested, Claim::Busy { remaining })
}

/// T5: the owner did not renew for a whole lease, nor in the grace period after that.
fn lapsed(record: &Record, request: &ClaimRequest, now: Timestamp) -> Step<Claim> {
    match record.terms.on_lost_owner {
        OnLostOwner::Hold => Step::put(unknown(record), Claim::Unknown),
        // Nonce and token stay: the lost owner may still come back and complete.
        OnLostOwner::Rerun if out_of_attempts(record) => {
            dead(record, record.nonce.unwrap_or(request.nonce), now)
        }
        OnLostOwner::Rerun => {
            let taken = Record { dirty: true, ..next(record, request, now) };
            // An owner that abandoned its key was not lost.
            granted(taken, if record.abandoned { Takeover::No } else { Takeover::Yes })
        }
    }
}

#[derive(PartialEq)]
enum Takeover {
    Yes,
    No,
}

fn granted(record: Record, takeover: Takeover) -> Step<Claim> {
    let nonce = record.nonce.expect("a granted record has its owner's nonce");
    let lease = Lease {
        owner: Owner { key: record.key, nonce, token: record.token },
        attempt: record.attempts,
        length: record.terms.lease.to_duration(),
        takeover: takeover == Takeover::Yes,
    };
    Step::put(record, Claim::Granted(lease))
}

fn busy(record: &Record, now: Timestamp) -> Step<Claim> {
    Step::keep(Claim::Busy { remaining: record.lease_until.since(now) })
}

/// T1 at the limit of attempts. The nonce identifies this death of the key, so that an operator's decision about it
/// cannot hit a later one. It is not the claimant's own nonce: the claim may be a delayed duplicate from an earlier
/// record of the key, whose sender still holds that nonce with this very token.
fn died_released(record: &Record, claimant: Nonce, now: Timestamp) -> Step<Claim> {
    dead(record, claimant.flipped(), now)
}

fn dead(record: &Record, nonce: Nonce, now: Timestamp) -> Step<Claim> {
    let expires_at = Some(now.after(record.terms.failure_retention));
    let dead = Record {
        state: State::Dead,
        contested: false,
        nonce: Some(nonce),
        expires_at,
        ..record.clone()
    };
    Step::put(dead, Claim::Dead)
}

fn out_of_attempts(record: &Record) -> bool {
    record.terms.max_attempts.is_some_and(|max| record.attempts >= max.get())
}

/// The record of a key that was absent.
fn first(request: &ClaimRequest, now: Timestamp) -> Record {
    let mut record = Record {
        key: request.key,
        state: State::InProgress,
        fingerprint: Some(request.fingerprint),
        nonce: Some(request.nonce),
        token: 1,
        attempts: 1,
        dirty: false,
        abandoned: false,
        contested: false,
        claimed_at: now,
        lease_until: now,
        terms: request.terms,
        created_at: now,
        completed_at: None,
        expires_at: None,
        outcome: None,
        labels: request.labels.clone(),
    };
    arm(&mut record, now);
    record
}

/// The next attempt at a key that was released or whose owner was lost.
fn next(record: &Record, request: &ClaimRequest, now: Timestamp) -> Record {
    let mut record = Record {
        state: State::InProgress,
        fingerprint: Some(request.fingerprint),
        nonce: Some(request.nonce),
        token: record.token.saturating_add(1),
        attempts: record.attempts.saturating_add(1),
        abandoned: false,
        contested: false,
        claimed_at: now,
        terms: Terms {
            on_lost_owner: record.terms.on_lost_owner,
            max_attempts: record.terms.max_attempts,
            ..request.terms
        },
        ..record.clone()
    };
    arm(&mut record, now);
    record
}

/// T2: the reply to this very claim was lost. The run counts from the first grant.
fn rearmed(record: &Record, now: Timestamp) -> Record {
    let mut record = record.clone();
    arm(&mut record, now);
    record
}
