//! I10 and I11: runs and answers belong to the payload and the key of the call.

use super::{
    Violation,
    invariant::Invariant::{I10, I11},
    key_history::{HistoryCall, KeyHistory},
};
use crate::{
    event::{Op, ReplyKind},
    ledger::{LedgerEntry, LedgerFact},
};

pub(super) fn check(history: &KeyHistory<'_>) -> Vec<Violation> {
    let checks = [granted_runs, pinned, own_payload, own_scope];
    checks.iter().filter_map(|check| check(history)).collect()
}

/// I10: every run had a grant for its payload.
fn granted_runs(history: &KeyHistory<'_>) -> Option<Violation> {
    let stray = history.ledger.iter().find(|entry| {
        !history.grants.iter().any(|grant| {
            (grant.nonce, grant.token, grant.attempt) == (entry.nonce, entry.token, entry.attempt)
                && grant.fingerprint == Some(entry.fingerprint)
        })
    })?;
    let what = format!(
        "payload {} ran under token {} without a grant for it",
        stray.fingerprint, stray.token
    );
    Some(history.violation(I10, what))
}

/// I10: once a payload took effect, no other payload is granted the key.
fn pinned(history: &KeyHistory<'_>) -> Option<Violation> {
    let effect = |entry: &&&LedgerEntry| entry.fact == LedgerFact::Effect;
    for first in history.ledger.iter().filter(effect) {
        let Some(owner) = history.grant(first.nonce, first.token) else { continue };
        let other = history.grants.iter().find(|grant| {
            grant.life == owner.life
                && grant.token > owner.token
                && grant.fingerprint != Some(first.fingerprint)
        });
        if let Some(other) = other {
            let what = format!(
                "payload {} took effect under token {}, token {} was granted for {:?}",
                first.fingerprint, first.token, other.token, other.fingerprint
            );
            return Some(history.violation(I10, what));
        }
    }
    None
}

/// I10: a call with one payload is not answered with the outcome of another.
fn own_payload(history: &KeyHistory<'_>) -> Option<Violation> {
    let wrong = |call: &&HistoryCall<'_>| {
        call.reply() == Some(ReplyKind::Done)
            && call.reply_event().map(|end| end.detail.fingerprint)
                != Some(call.begin.detail.fingerprint)
    };
    let call = history.of(Op::Run).find(wrong)?;
    let sent = call.begin.detail.fingerprint.unwrap_or_default();
    Some(
        history.violation(
            I10,
            format!("payload {sent} was answered with the outcome of another payload"),
        ),
    )
}

/// I11: every outcome names its key.
fn own_scope(history: &KeyHistory<'_>) -> Option<Violation> {
    let replies = history.calls.iter().filter_map(|call| call.reply_event().map(|end| &end.detail));
    let foreign = replies
        .chain(history.dumped())
        .find_map(|detail| detail.of.filter(|of| *of != history.key))?;
    Some(history.violation(I11, format!("was answered with the outcome of {foreign}")))
}
