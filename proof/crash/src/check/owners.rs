//! I1, I3, I8, I9, I13: which owner may run, and until when its steps are accepted.

use std::collections::{BTreeSet, HashMap};

use super::{
    Evidence, TOLERANCE, Violation,
    invariant::Invariant::{I1, I3, I8, I9, I13},
    key_history::{HistoryCall, KeyGrant, KeyHistory, kept},
};
use crate::{
    event::{Hex, Op, ReplyKind},
    key::{KeyClass, KeyId},
    ledger::LedgerFact,
};

pub(super) fn check(history: &KeyHistory<'_>) -> Vec<Violation> {
    let checks =
        [single_effect, distinct_runs, whole_lease, freed_at_open, rising_tokens, fenced, capped];
    checks.iter().filter_map(|check| check(history)).collect()
}

/// I8 over all keys: a nonce belongs to one claim.
pub(super) fn nonces(evidence: &Evidence) -> Vec<Violation> {
    let mut first_sent: HashMap<Hex, u64> = HashMap::new();
    let mut granted: HashMap<Hex, (KeyId, u64)> = HashMap::new();
    let forgets = evidence.events.iter().filter(|event| event.op == Op::Forget);
    let forgotten: BTreeSet<KeyId> = forgets.filter_map(|event| event.detail.key).collect();
    let mut broken = Vec::new();
    for event in evidence.events.iter().filter(|event| event.op == Op::Claim) {
        let detail = &event.detail;
        let (Some(nonce), Some(key)) = (detail.nonce, detail.key) else { continue };
        let since = *first_sent.entry(nonce).or_insert(event.t_mono);
        let (Some(ReplyKind::Granted), Some(token)) = (detail.reply, detail.token) else {
            continue;
        };
        let first = *granted.entry(nonce).or_insert((key, token));
        // A claim that is repeated after its record expired is a first claim.
        let expired = first.0 == key && kept(key).is_some_and(|kept| event.t_mono >= since + kept);
        let forgotten = first.0 == key && forgotten.contains(&key);
        // A claim whose reply came after the end of its lease is repeated, and other owners may have come since.
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

fn single_effect(history: &KeyHistory<'_>) -> Option<Violation> {
    let effects = history.ledger.iter().filter(|entry| entry.fact == LedgerFact::Effect).count();
    let hold = history.key.class() == KeyClass::Hold;
    (hold && effects > 1)
        .then(|| history.violation(I1, format!("{effects} effects of a key on hold")))
}

/// I3, by the ledger alone: a token runs once.
fn distinct_runs(history: &KeyHistory<'_>) -> Option<Violation> {
    // Where records expire or are forgotten, tokens start again from one. Nonces never repeat.
    let again = history.kept().is_some() || history.is_operated();
    for fact in [LedgerFact::Start, LedgerFact::Effect] {
        let mut seen = BTreeSet::new();
        for entry in history.ledger.iter().filter(|entry| entry.fact == fact) {
            let id = (entry.token, if again { entry.nonce } else { Hex(0) });
            if !seen.insert(id) {
                return Some(
                    history.violation(I3, format!("token {} ran twice ({fact:?})", entry.token)),
                );
            }
        }
    }
    None
}

/// I3, by time: an owner that neither released the key nor died kept it for its whole lease and the grace period.
fn whole_lease(history: &KeyHistory<'_>) -> Option<Violation> {
    history.grants.iter().find_map(|next| {
        let last = history.grants.iter().find(|last| follows(next, last))?;
        let lease = u64::try_from(KeyClass::LEASE.as_micros()).ok()?;
        let armed = armed_at(history, last, next);
        let early = next.ended + TOLERANCE < armed + lease + lease / 3;
        (early && !gave_back(history, last, next) && !died(history, last, next)).then(|| {
            let after = next.ended.saturating_sub(armed) / 1000;
            let what = format!(
                "token {} was granted {after} ms after token {} was last renewed; the lease is {} ms, and the grace \
                 period a third of that",
                next.token,
                last.token,
                lease / 1000
            );
            history.violation(I3, what)
        })
    })
}

fn follows(next: &KeyGrant, last: &KeyGrant) -> bool {
    next.life == last.life && next.token == last.token + 1 && last.ended <= next.ended
}

/// The earliest begin of the lease. Renewals after the takeover are checked by I9.
fn armed_at(history: &KeyHistory<'_>, owner: &KeyGrant, next: &KeyGrant) -> u64 {
    let renewed = |call: &&HistoryCall<'_>| {
        call.nonce() == Some(owner.nonce)
            && call.reply() == Some(ReplyKind::Extended)
            && call.invoked() < next.ended
    };
    let renewals = history.of(Op::Renew).filter(renewed).map(HistoryCall::invoked);
    renewals.max().unwrap_or(owner.invoked).max(owner.invoked)
}

/// True when the owner released or abandoned the key, or may have done so.
fn gave_back(history: &KeyHistory<'_>, last: &KeyGrant, next: &KeyGrant) -> bool {
    history.calls.iter().any(|call| {
        matches!(call.op(), Op::Release | Op::Abandon)
            && call.nonce() == Some(last.nonce)
            && call.invoked() <= next.ended
            && call.reply().is_none_or(|it| matches!(it, ReplyKind::Open | ReplyKind::Lapsing))
    })
}

fn died(history: &KeyHistory<'_>, last: &KeyGrant, next: &KeyGrant) -> bool {
    let death = history.deaths.get(&last.process);
    history.rules.frees_at_open
        && last.process != next.process
        && death.is_some_and(|at| *at <= next.ended)
}

/// I3, where opening the store ends the leases of dead processes: no claim has to wait for one of them.
fn freed_at_open(history: &KeyHistory<'_>) -> Option<Violation> {
    let busy = |call: &&HistoryCall<'_>| {
        history.rules.frees_at_open && call.reply() == Some(ReplyKind::Busy)
    };
    let freed = |call: &&HistoryCall<'_>| {
        let rivals = || history.of(Op::Claim).filter(|other| may_own(history, other, call));
        let same_process = |other: &HistoryCall<'_>| other.begin.process == call.begin.process;
        !rivals().any(|other| same_process(other) || left_backoff(history, other))
            && rivals().any(|other| history.died_before_opening(other, call))
    };
    let call = history.of(Op::Claim).filter(busy).find(freed)?;
    let what = format!(
        "process {} had to wait for an owner whose process had died before it opened the store",
        call.begin.process
    );
    Some(history.violation(I3, what))
}

/// True when the owner abandoned the key, or may have done so: the backoff continues after the end of its process.
fn left_backoff(history: &KeyHistory<'_>, owner: &HistoryCall<'_>) -> bool {
    history.of(Op::Abandon).any(|call| {
        call.nonce() == owner.nonce()
            && call.reply().is_none_or(|answer| answer == ReplyKind::Lapsing)
    })
}

/// True when `other` may have been the owner for which `busy` had to wait.
fn may_own(history: &KeyHistory<'_>, other: &HistoryCall<'_>, busy: &HistoryCall<'_>) -> bool {
    let granted = other.reply().is_none_or(|answer| answer == ReplyKind::Granted);
    let ended_before = |step: &HistoryCall<'_>| {
        let ended = match step.op() {
            Op::Complete => step.reply() == Some(ReplyKind::Recorded),
            Op::Release => step.reply() == Some(ReplyKind::Open),
            _ => false,
        };
        ended && step.ended().is_some_and(|ended| ended < busy.invoked())
    };
    let mut own = history.calls.iter().filter(|step| step.nonce() == other.nonce());
    let is_itself = other.begin.seq == busy.begin.seq;
    granted
        && !is_itself
        && busy.ended().is_some_and(|ended| other.invoked() <= ended)
        && !own.any(ended_before)
}

fn rising_tokens(history: &KeyHistory<'_>) -> Option<Violation> {
    for (at, next) in history.grants.iter().enumerate() {
        for last in &history.grants[..at] {
            let other = last.nonce != next.nonce;
            let same_token = other && last.life == next.life && last.token == next.token;
            let fell = other && last.ended < next.invoked && next.token <= last.token;
            if same_token || fell && restarted_early(history, last, next) {
                let what = format!("token {} was granted after token {}", next.token, last.token);
                return Some(history.violation(I8, what));
            }
        }
    }
    None
}

/// Tokens may start again only when the record can have expired or been forgotten.
fn restarted_early(history: &KeyHistory<'_>, last: &KeyGrant, next: &KeyGrant) -> bool {
    !history.is_forgotten(last, next)
        && history.kept().is_none_or(|kept| next.ended < last.invoked + kept)
}

/// I9: after the key was granted to another claim, the steps of the former owner are refused.
fn fenced(history: &KeyHistory<'_>) -> Option<Violation> {
    let accepted = [ReplyKind::Extended, ReplyKind::Recorded, ReplyKind::Open, ReplyKind::Lapsing];
    for call in &history.calls {
        let owner_step = matches!(call.op(), Op::Renew | Op::Complete | Op::Release | Op::Abandon);
        let Some(answer) = call.reply().filter(|it| owner_step && accepted.contains(it)) else {
            continue;
        };
        let Some(own) = history.owner(call) else { continue };
        let newer = history.grants.iter().find(|other| {
            other.nonce != own.nonce && own.ended < other.invoked && other.ended < call.invoked()
        });
        if let Some(newer) = newer {
            let what = format!(
                "token {} was answered {answer:?} after token {} had been granted",
                own.token, newer.token
            );
            return Some(history.violation(I9, what));
        }
    }
    None
}

fn capped(history: &KeyHistory<'_>) -> Option<Violation> {
    let capped = history.key.class() == KeyClass::Capped;
    let most = history.grants.iter().map(|grant| grant.attempt).max().unwrap_or_default();
    let runs = history.ledger.iter().filter(|entry| entry.fact == LedgerFact::Start).count();
    (capped && (most > KeyClass::CAP || runs > KeyClass::CAP as usize)).then(|| {
        history.violation(I13, format!("attempt {most}, {runs} runs; the cap is {}", KeyClass::CAP))
    })
}
