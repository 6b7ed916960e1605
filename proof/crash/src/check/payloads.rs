//! I10 and I11: the right work for the right caller.

use super::{
    Violation,
    invariant::Invariant::{I10, I11},
    key_history::{Call, Story},
};
use crate::{
    event::{Answer, Op},
    ledger::{Entry, What},
};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let checks = [granted_runs, pinned, own_payload, own_scope];
    checks.iter().filter_map(|check| check(story)).collect()
}

/// Every run had a grant, for what it was asked.
fn granted_runs(story: &Story<'_>) -> Option<Violation> {
    let stray = story.ledger.iter().find(|entry| {
        !story.grants.iter().any(|grant| {
            (grant.nonce, grant.token, grant.attempt) == (entry.nonce, entry.token, entry.attempt)
                && grant.fingerprint == Some(entry.fingerprint)
        })
    })?;
    let what = format!(
        "payload {} ran under token {} without a grant for it",
        stray.fingerprint, stray.token
    );
    Some(story.broken(I10, what))
}

/// Once a payload took effect, no other is run under the key.
fn pinned(story: &Story<'_>) -> Option<Violation> {
    let effect = |entry: &&&Entry| entry.what == What::Effect;
    for first in story.ledger.iter().filter(effect) {
        let Some(owner) = story.grant(first.nonce, first.token) else { continue };
        let other = story.grants.iter().find(|grant| {
            grant.life == owner.life
                && grant.token > owner.token
                && grant.fingerprint != Some(first.fingerprint)
        });
        if let Some(other) = other {
            let what = format!(
                "payload {} took effect under token {}, token {} was granted for {:?}",
                first.fingerprint, first.token, other.token, other.fingerprint
            );
            return Some(story.broken(I10, what));
        }
    }
    None
}

/// Whoever asks for one payload is not answered with another's outcome.
fn own_payload(story: &Story<'_>) -> Option<Violation> {
    let wrong = |call: &&Call<'_>| {
        call.answer() == Some(Answer::Done)
            && call.told().map(|end| end.detail.fingerprint) != Some(call.begin.detail.fingerprint)
    };
    let call = story.of(Op::Run).find(wrong)?;
    let asked = call.begin.detail.fingerprint.unwrap_or_default();
    Some(story.broken(I10, format!("payload {asked} was answered with another's outcome")))
}

/// I11: every outcome says whose it is.
fn own_scope(story: &Story<'_>) -> Option<Violation> {
    let told = story.calls.iter().filter_map(|call| call.told().map(|end| &end.detail));
    let foreign =
        told.chain(story.dumped()).find_map(|detail| detail.of.filter(|of| *of != story.key))?;
    Some(story.broken(I11, format!("was answered with the outcome of {foreign}")))
}
