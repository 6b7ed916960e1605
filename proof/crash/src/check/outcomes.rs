//! I4–I7: one outcome, the same for every caller, and never lost. Keys that an operator forgot or erased are left to
//! I15, which checks the order of steps.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Violation,
    invariant::Invariant::{I4, I5, I6, I7},
    key_history::{HistoryCall, KeyHistory},
};
use crate::event::{Hex, Op, ReplyKind};

pub(super) fn check(history: &KeyHistory<'_>) -> Vec<Violation> {
    let checks = [one_outcome, same_replays, no_lost_outcome, no_lost_claim, no_change_afterwards];
    checks.iter().filter_map(|check| check(history)).collect()
}

/// An outcome that a caller or owner knows to be recorded.
struct AcknowledgedOutcome {
    digest: Hex,
    /// The earliest that it can have been recorded.
    since: u64,
    /// When the acknowledgement was received.
    acknowledged: u64,
}

/// The acknowledged outcomes. Where records expire, only acknowledgements by the store itself have a usable time.
fn recorded(history: &KeyHistory<'_>) -> Vec<AcknowledgedOutcome> {
    let acknowledged = |call: &HistoryCall<'_>| match (call.op(), call.reply()?) {
        (Op::Complete, ReplyKind::Recorded) => call.digest(),
        (Op::Run, ReplyKind::Done) if history.kept().is_none() => {
            let end = call.reply_event()?;
            end.detail.stored.then_some(end.detail.digest).flatten()
        }
        _ => None,
    };
    let outcome = |call: &HistoryCall<'_>| {
        let (digest, ended) = (acknowledged(call)?, call.ended()?);
        let since = first_sent(history, call);
        Some(AcknowledgedOutcome { digest, since, acknowledged: ended })
    };
    history.calls.iter().filter_map(outcome).collect()
}

/// When the outcome was first sent. An earlier call without a reply may have recorded it, so that this one found it
/// recorded.
fn first_sent(history: &KeyHistory<'_>, call: &HistoryCall<'_>) -> u64 {
    let what = |call: &HistoryCall<'_>| (call.nonce(), call.digest());
    let may_have =
        |call: &HistoryCall<'_>| matches!(call.reply(), None | Some(ReplyKind::Recorded));
    let completions = history.of(Op::Complete).filter(|it| what(it) == what(call) && may_have(it));
    completions.map(HistoryCall::invoked).min().unwrap_or_else(|| call.invoked())
}

/// I4, by completions and by first answers of runs.
fn one_outcome(history: &KeyHistory<'_>) -> Option<Violation> {
    let mut lives: BTreeMap<u32, BTreeSet<Hex>> = BTreeMap::new();
    for call in &history.calls {
        let Some(end) = call.reply_event() else { continue };
        let life = match (call.op(), call.reply()) {
            (Op::Complete, Some(ReplyKind::Recorded)) => {
                history.owner(call).map(|grant| grant.life)
            }
            (Op::Run, Some(ReplyKind::Done)) if end.detail.stored && !end.detail.replayed => {
                (history.kept().is_none() && !history.is_operated()).then_some(0)
            }
            _ => None,
        };
        if let (Some(life), Some(digest)) = (life, end.detail.digest) {
            lives.entry(life).or_default().insert(digest);
        }
    }
    let several = lives.values().find(|digests| digests.len() > 1)?;
    Some(history.violation(I4, format!("{} outcomes were recorded: {several:?}", several.len())))
}

/// I5: a replay is an outcome that an owner sent, and the one that was acknowledged before.
fn same_replays(history: &KeyHistory<'_>) -> Option<Violation> {
    let sent: BTreeSet<Hex> = history.of(Op::Complete).filter_map(HistoryCall::digest).collect();
    let known: BTreeSet<Hex> = recorded(history)
        .iter()
        .filter(|_| history.kept().is_none() && !history.is_operated())
        .map(|recorded| recorded.digest)
        .collect();
    for call in &history.calls {
        let Some(digest) = replayed(call) else { continue };
        if !sent.contains(&digest) {
            return Some(
                history.violation(I5, format!("{digest} was replayed and never recorded")),
            );
        }
        if let Some(first) = known.iter().find(|first| **first != digest) {
            return Some(
                history.violation(I5, format!("{digest} was replayed, recorded is {first}")),
            );
        }
    }
    None
}

fn replayed(call: &HistoryCall<'_>) -> Option<Hex> {
    let end = call.reply_event()?;
    match (call.op(), call.reply()?) {
        (Op::Run, ReplyKind::Done) if end.detail.replayed => end.detail.digest,
        (Op::Claim, ReplyKind::Replay) | (Op::Get, ReplyKind::Completed) => end.detail.digest,
        _ => None,
    }
}

/// I6: an acknowledged outcome is in the final dump, unless its retention may have ended.
fn no_lost_outcome(history: &KeyHistory<'_>) -> Option<Violation> {
    if history.is_operated() {
        return None;
    }
    let seen = history.dumped().filter(|record| record.reply == Some(ReplyKind::Completed));
    let digest = seen.and_then(|record| record.digest);
    let lost = recorded(history).into_iter().find(|recorded| {
        let kept = history.kept().is_none_or(|kept| history.dumped_at < recorded.since + kept);
        kept && digest != Some(recorded.digest)
    })?;
    let state = history.dumped().and_then(|record| record.reply);
    let state = state.map_or_else(|| "absent".to_owned(), |state| format!("{state:?}"));
    let what = format!("lost outcome: {} was acknowledged, at the end it is {state}", lost.digest);
    Some(history.violation(I6, what))
}

/// I6: at the end the record has the highest token that was granted, or a higher one.
fn no_lost_claim(history: &KeyHistory<'_>) -> Option<Violation> {
    if history.kept().is_some() || history.is_operated() {
        return None;
    }
    let granted = history.grants.iter().map(|grant| grant.token);
    let highest = granted.chain(history.ledger.iter().map(|entry| entry.token)).max()?;
    let at_end = history.dumped().and_then(|record| record.token);
    (at_end.unwrap_or_default() < highest).then(|| {
        let what = format!("lost claim: token {highest} was granted, at the end it is {at_end:?}");
        history.violation(I6, what)
    })
}

/// I7: after an outcome was acknowledged, no call gets another reply.
fn no_change_afterwards(history: &KeyHistory<'_>) -> Option<Violation> {
    if history.is_operated() {
        return None;
    }
    for recorded in recorded(history) {
        let until = history.kept().map_or(u64::MAX, |kept| recorded.since + kept);
        let back = history.calls.iter().find(|call| {
            call.invoked() > recorded.acknowledged
                && call.ended().is_some_and(|ended| ended < until)
                && contradicts(call, recorded.digest)
        });
        if let Some(call) = back {
            let what = format!(
                "{} was acknowledged, and then {:?} was answered {:?}",
                recorded.digest,
                call.op(),
                call.reply()
            );
            return Some(history.violation(I7, what));
        }
    }
    None
}

fn contradicts(call: &HistoryCall<'_>, digest: Hex) -> bool {
    let Some(answer) = call.reply() else { return false };
    let same = call.digest() == Some(digest);
    match call.op() {
        Op::Claim => !(answer == ReplyKind::Mismatch || answer == ReplyKind::Replay && same),
        Op::Get => !(answer == ReplyKind::Completed && same),
        Op::Complete => answer == ReplyKind::Recorded && !same || answer == ReplyKind::Missing,
        Op::Renew => answer == ReplyKind::Extended,
        Op::Release | Op::Abandon => answer != ReplyKind::Superseded,
        Op::Run | Op::Purge | Op::Forget | Op::Erase => false,
        Op::Ready | Op::Point | Op::Done | Op::Dump | Op::Exit | Op::Fault => false,
    }
}
