//! I1, I3, I8, I9, I13: who may run, and who may still speak.

use std::collections::{BTreeSet, HashMap};

use super::{
    Evidence, TOLERANCE, Violation,
    invariant::Invariant::{I1, I3, I8, I9, I13},
    key_history::{Call, Grant, Story, kept},
};
use crate::{
    event::{Answer, Hex, Op},
    key::{Class, KeyId},
    ledger::What,
};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let checks =
        [single_effect, distinct_runs, whole_lease, freed_at_open, rising_tokens, fenced, capped];
    checks.iter().filter_map(|check| check(story)).collect()
}

/// I8 over all keys: a nonce belongs to one claim.
pub(super) fn nonces(evidence: &Evidence) -> Vec<Violation> {
    let mut asked: HashMap<Hex, u64> = HashMap::new();
    let mut granted: HashMap<Hex, (KeyId, u64)> = HashMap::new();
    let forgets = evidence.events.iter().filter(|event| event.op == Op::Forget);
    let forgotten: BTreeSet<KeyId> = forgets.filter_map(|event| event.detail.key).collect();
    let mut broken = Vec::new();
    for event in evidence.events.iter().filter(|event| event.op == Op::Claim) {
        let detail = &event.detail;
        let (Some(nonce), Some(key)) = (detail.nonce, detail.key) else { continue };
        let since = *asked.entry(nonce).or_insert(event.t_mono);
        let (Some(Answer::Granted), Some(token)) = (detail.answer, detail.token) else { continue };
        let first = *granted.entry(nonce).or_insert((key, token));
        // A claim that is asked again after its record expired is a first one.
        let expired = first.0 == key && kept(key).is_some_and(|kept| event.t_mono >= since + kept);
        let forgotten = first.0 == key && forgotten.contains(&key);
        // An answer that came after its lease is asked for again, and others may have been there since.
        let replaced = first.0 == key && token > first.1 + 1;
        if first != (key, token) && !expired && !forgotten && !replaced {
            let (first_key, first_token) = first;
            let what = format!(
                "nonce {nonce} was granted {first_key} token {first_token} and {key} token {token}"
            );
            broken.push(Violation::new(I8, Some(key), what));
        }
    }
    broken
}

fn single_effect(story: &Story<'_>) -> Option<Violation> {
    let effects = story.ledger.iter().filter(|entry| entry.what == What::Effect).count();
    let hold = story.key.class() == Class::Hold;
    (hold && effects > 1).then(|| story.broken(I1, format!("{effects} effects of a key on hold")))
}

/// I3, by the ledger alone: a token runs once.
fn distinct_runs(story: &Story<'_>) -> Option<Violation> {
    // Where records expire or are forgotten, tokens start again; nonces do not.
    let again = story.kept().is_some() || story.is_operated();
    for what in [What::Start, What::Effect] {
        let mut seen = BTreeSet::new();
        for entry in story.ledger.iter().filter(|entry| entry.what == what) {
            let id = (entry.token, if again { entry.nonce } else { Hex(0) });
            if !seen.insert(id) {
                return Some(
                    story.broken(I3, format!("token {} ran twice ({what:?})", entry.token)),
                );
            }
        }
    }
    None
}

/// I3, by time: who neither gave the key back nor died was left its whole lease.
fn whole_lease(story: &Story<'_>) -> Option<Violation> {
    story.grants.iter().find_map(|next| {
        let last = story.grants.iter().find(|last| follows(next, last))?;
        let lease = u64::try_from(Class::LEASE.as_micros()).ok()?;
        let armed = armed_at(story, last, next);
        let early = next.ended + TOLERANCE < armed + lease;
        (early && !gave_back(story, last, next) && !died(story, last, next)).then(|| {
            let after = next.ended.saturating_sub(armed) / 1000;
            let what = format!(
                "token {} was granted {after} ms after token {} was last renewed; the lease is {} ms",
                next.token,
                last.token,
                lease / 1000
            );
            story.broken(I3, what)
        })
    })
}

fn follows(next: &Grant, last: &Grant) -> bool {
    next.life == last.life && next.token == last.token + 1 && last.ended <= next.ended
}

/// When the lease began to run, at the earliest. A renewal after the takeover is for I9.
fn armed_at(story: &Story<'_>, owner: &Grant, next: &Grant) -> u64 {
    let renewed = |call: &&Call<'_>| {
        call.nonce() == Some(owner.nonce)
            && call.answer() == Some(Answer::Extended)
            && call.invoked() < next.ended
    };
    let renewals = story.of(Op::Renew).filter(renewed).map(Call::invoked);
    renewals.max().unwrap_or(owner.invoked).max(owner.invoked)
}

/// True when the owner released or abandoned the key, or may have.
fn gave_back(story: &Story<'_>, last: &Grant, next: &Grant) -> bool {
    story.calls.iter().any(|call| {
        matches!(call.op(), Op::Release | Op::Abandon)
            && call.nonce() == Some(last.nonce)
            && call.invoked() <= next.ended
            && call.answer().is_none_or(|it| matches!(it, Answer::Open | Answer::Lapsing))
    })
}

fn died(story: &Story<'_>, last: &Grant, next: &Grant) -> bool {
    let death = story.deaths.get(&last.process);
    story.rules.frees_at_open
        && last.process != next.process
        && death.is_some_and(|at| *at <= next.ended)
}

/// I3, where opening the store ends the leases of the dead: nobody is told to wait for one of them.
fn freed_at_open(story: &Story<'_>) -> Option<Violation> {
    let busy = |call: &&Call<'_>| story.rules.frees_at_open && call.answer() == Some(Answer::Busy);
    let freed = |call: &&Call<'_>| {
        let rivals = || story.of(Op::Claim).filter(|other| may_own(story, other, call));
        let here = |other: &Call<'_>| other.begin.process == call.begin.process;
        !rivals().any(|other| here(other) || left_backoff(story, other))
            && rivals().any(|other| story.died_before_opening(other, call))
    };
    let call = story.of(Op::Claim).filter(busy).find(freed)?;
    let what = format!(
        "process {} was told to wait for an owner whose process had died before it opened the store",
        call.begin.process
    );
    Some(story.broken(I3, what))
}

/// True when the owner gave up, or may have: the backoff it left outlives its process.
fn left_backoff(story: &Story<'_>, owner: &Call<'_>) -> bool {
    story.of(Op::Abandon).any(|call| {
        call.nonce() == owner.nonce()
            && call.answer().is_none_or(|answer| answer == Answer::Lapsing)
    })
}

/// True when `other` may have been the owner that `busy` was told of.
fn may_own(story: &Story<'_>, other: &Call<'_>, busy: &Call<'_>) -> bool {
    let granted = other.answer().is_none_or(|answer| answer == Answer::Granted);
    let ended_before = |step: &Call<'_>| {
        let gave_up = match step.op() {
            Op::Complete => step.answer() == Some(Answer::Recorded),
            Op::Release => step.answer() == Some(Answer::Open),
            _ => false,
        };
        gave_up && step.ended().is_some_and(|ended| ended < busy.invoked())
    };
    let mut own = story.calls.iter().filter(|step| step.nonce() == other.nonce());
    let is_itself = other.begin.seq == busy.begin.seq;
    granted
        && !is_itself
        && busy.ended().is_some_and(|ended| other.invoked() <= ended)
        && !own.any(ended_before)
}

fn rising_tokens(story: &Story<'_>) -> Option<Violation> {
    for (at, next) in story.grants.iter().enumerate() {
        for last in &story.grants[..at] {
            let other = last.nonce != next.nonce;
            let twins = other && last.life == next.life && last.token == next.token;
            let fell = other && last.ended < next.invoked && next.token <= last.token;
            if twins || fell && restarted_early(story, last, next) {
                let what = format!("token {} was granted after token {}", next.token, last.token);
                return Some(story.broken(I8, what));
            }
        }
    }
    None
}

/// A token may start again only when the record's retention can have passed, or it was forgotten.
fn restarted_early(story: &Story<'_>, last: &Grant, next: &Grant) -> bool {
    !story.is_forgotten(last, next)
        && story.kept().is_none_or(|kept| next.ended < last.invoked + kept)
}

/// I9: from the moment somebody else was granted the key, the former owner's steps are refused.
fn fenced(story: &Story<'_>) -> Option<Violation> {
    let accepted = [Answer::Extended, Answer::Recorded, Answer::Open, Answer::Lapsing];
    for call in &story.calls {
        let owner_step = matches!(call.op(), Op::Renew | Op::Complete | Op::Release | Op::Abandon);
        let Some(answer) = call.answer().filter(|it| owner_step && accepted.contains(it)) else {
            continue;
        };
        let Some(own) = story.owner(call) else { continue };
        let newer = story.grants.iter().find(|other| {
            other.nonce != own.nonce && own.ended < other.invoked && other.ended < call.invoked()
        });
        if let Some(newer) = newer {
            let what = format!(
                "token {} was answered {answer:?} after token {} had been granted",
                own.token, newer.token
            );
            return Some(story.broken(I9, what));
        }
    }
    None
}

fn capped(story: &Story<'_>) -> Option<Violation> {
    let capped = story.key.class() == Class::Capped;
    let most = story.grants.iter().map(|grant| grant.attempt).max().unwrap_or_default();
    let runs = story.ledger.iter().filter(|entry| entry.what == What::Start).count();
    (capped && (most > Class::CAP || runs > Class::CAP as usize)).then(|| {
        story.broken(I13, format!("attempt {most}, {runs} runs; the cap is {}", Class::CAP))
    })
}
