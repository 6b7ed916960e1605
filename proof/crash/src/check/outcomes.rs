//! I4–I7: one outcome, the same for everybody, and never lost. What may become of a key that an
//! operator forgot or erased is a question of order: I15 answers it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Violation,
    invariant::Invariant::{I4, I5, I6, I7},
    key_history::{Call, Story},
};
use crate::event::{Answer, Hex, Op};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let checks = [one_outcome, same_replays, no_lost_outcome, no_lost_claim, no_way_back];
    checks.iter().filter_map(|check| check(story)).collect()
}

/// An outcome that somebody was told is recorded.
struct Recorded {
    digest: Hex,
    /// The earliest that it can have been recorded.
    since: u64,
    /// When somebody knew.
    known: u64,
}

/// What was acknowledged. Where records expire, only what the store itself said can be dated.
fn recorded(story: &Story<'_>) -> Vec<Recorded> {
    let told = |call: &Call<'_>| match (call.op(), call.answer()?) {
        (Op::Complete, Answer::Recorded) => call.digest(),
        (Op::Run, Answer::Done) if story.kept().is_none() => {
            let end = call.told()?;
            end.detail.stored.then_some(end.detail.digest).flatten()
        }
        _ => None,
    };
    let known = |call: &Call<'_>| {
        let (digest, known) = (told(call)?, call.ended()?);
        Some(Recorded { digest, since: first_asked(story, call), known })
    };
    story.calls.iter().filter_map(known).collect()
}

/// When this was first asked for. A call that nobody was told about may have done it, and this one found it
/// done.
fn first_asked(story: &Story<'_>, call: &Call<'_>) -> u64 {
    let what = |call: &Call<'_>| (call.nonce(), call.digest());
    let may_have = |call: &Call<'_>| matches!(call.answer(), None | Some(Answer::Recorded));
    let asked = story.of(Op::Complete).filter(|it| what(it) == what(call) && may_have(it));
    asked.map(Call::invoked).min().unwrap_or_else(|| call.invoked())
}

/// I4: by whoever records, and by first answers.
fn one_outcome(story: &Story<'_>) -> Option<Violation> {
    let mut lives: BTreeMap<u32, BTreeSet<Hex>> = BTreeMap::new();
    for call in &story.calls {
        let Some(end) = call.told() else { continue };
        let life = match (call.op(), call.answer()) {
            (Op::Complete, Some(Answer::Recorded)) => story.owner(call).map(|grant| grant.life),
            (Op::Run, Some(Answer::Done)) if end.detail.stored && !end.detail.replayed => {
                (story.kept().is_none() && !story.is_operated()).then_some(0)
            }
            _ => None,
        };
        if let (Some(life), Some(digest)) = (life, end.detail.digest) {
            lives.entry(life).or_default().insert(digest);
        }
    }
    let several = lives.values().find(|digests| digests.len() > 1)?;
    Some(story.broken(I4, format!("{} outcomes were recorded: {several:?}", several.len())))
}

/// I5: a replay is what somebody asked to be recorded, and what was acknowledged before.
fn same_replays(story: &Story<'_>) -> Option<Violation> {
    let asked: BTreeSet<Hex> = story.of(Op::Complete).filter_map(Call::digest).collect();
    let known: BTreeSet<Hex> = recorded(story)
        .iter()
        .filter(|_| story.kept().is_none() && !story.is_operated())
        .map(|recorded| recorded.digest)
        .collect();
    for call in &story.calls {
        let Some(digest) = replayed(call) else { continue };
        if !asked.contains(&digest) {
            return Some(story.broken(I5, format!("{digest} was replayed and never recorded")));
        }
        if let Some(first) = known.iter().find(|first| **first != digest) {
            return Some(story.broken(I5, format!("{digest} was replayed, recorded is {first}")));
        }
    }
    None
}

fn replayed(call: &Call<'_>) -> Option<Hex> {
    let end = call.told()?;
    match (call.op(), call.answer()?) {
        (Op::Run, Answer::Done) if end.detail.replayed => end.detail.digest,
        (Op::Claim, Answer::Replay) | (Op::Get, Answer::Completed) => end.detail.digest,
        _ => None,
    }
}

/// I6: what was acknowledged is in the final dump, unless its retention may have passed.
fn no_lost_outcome(story: &Story<'_>) -> Option<Violation> {
    if story.is_operated() {
        return None;
    }
    let seen = story.dumped().filter(|record| record.answer == Some(Answer::Completed));
    let digest = seen.and_then(|record| record.digest);
    let lost = recorded(story).into_iter().find(|recorded| {
        let kept = story.kept().is_none_or(|kept| story.dumped_at < recorded.since + kept);
        kept && digest != Some(recorded.digest)
    })?;
    let state = story.dumped().and_then(|record| record.answer);
    let state = state.map_or_else(|| "absent".to_owned(), |state| format!("{state:?}"));
    let what = format!("lost outcome: {} was acknowledged, at the end it is {state}", lost.digest);
    Some(story.broken(I6, what))
}

/// I6: whoever ran had a token; at the end the record has that token or a higher one.
fn no_lost_claim(story: &Story<'_>) -> Option<Violation> {
    if story.kept().is_some() || story.is_operated() {
        return None;
    }
    let granted = story.grants.iter().map(|grant| grant.token);
    let highest = granted.chain(story.ledger.iter().map(|entry| entry.token)).max()?;
    let at_end = story.dumped().and_then(|record| record.token);
    (at_end.unwrap_or_default() < highest).then(|| {
        let what = format!("lost claim: token {highest} was granted, at the end it is {at_end:?}");
        story.broken(I6, what)
    })
}

/// I7: once somebody knows the outcome, nobody is told anything else.
fn no_way_back(story: &Story<'_>) -> Option<Violation> {
    if story.is_operated() {
        return None;
    }
    for recorded in recorded(story) {
        let until = story.kept().map_or(u64::MAX, |kept| recorded.since + kept);
        let back = story.calls.iter().find(|call| {
            call.invoked() > recorded.known
                && call.ended().is_some_and(|ended| ended < until)
                && goes_back(call, recorded.digest)
        });
        if let Some(call) = back {
            let what = format!(
                "{} was acknowledged, and then {:?} was answered {:?}",
                recorded.digest,
                call.op(),
                call.answer()
            );
            return Some(story.broken(I7, what));
        }
    }
    None
}

fn goes_back(call: &Call<'_>, digest: Hex) -> bool {
    let Some(answer) = call.answer() else { return false };
    let same = call.digest() == Some(digest);
    match call.op() {
        Op::Claim => !(answer == Answer::Mismatch || answer == Answer::Replay && same),
        Op::Get => !(answer == Answer::Completed && same),
        Op::Complete => answer == Answer::Recorded && !same || answer == Answer::Missing,
        Op::Renew => answer == Answer::Extended,
        Op::Release | Op::Abandon => answer != Answer::Superseded,
        Op::Run | Op::Purge | Op::Forget | Op::Erase => false,
        Op::Ready | Op::Point | Op::Done | Op::Dump | Op::Exit | Op::Blow => false,
    }
}
