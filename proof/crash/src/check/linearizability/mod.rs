//! I15: the steps of a key fit into one order that respects time.
//!
//! A search over all orders, after Wing and Gong: a call becomes pending when it begins, and when it ends, only orders
//! in which it has been applied remain. An open call may take effect at any later time: until the end of its process
//! where no call outlives that, and until the server to which it was sent is killed.

mod equivalence;
mod frontier;
mod model;
mod search;

use super::{
    Violation,
    invariant::Invariant::I15,
    key_history::{HistoryCall, KeyHistory},
};
use crate::event::{Op, ReplyKind};
use equivalence::EquivalentCalls;
use model::{CallConditions, KeyState};
use search::{OrderSearch, SearchVerdict};

pub(super) fn check(history: &KeyHistory<'_>) -> Vec<Violation> {
    let equivalent = EquivalentCalls::of(&history.calls, |call| latest_effect(history, call));
    let start = KeyState::start(history.rules.has_front);
    let conditions: Vec<CallConditions> =
        history.calls.iter().map(|call| conditions(history, call)).collect();
    let mut search = OrderSearch::new(conditions, start, &history.calls, equivalent);
    let broken = moments(history).into_iter().find_map(|(_, moment)| match moment {
        CallMoment::Begin(at) => {
            search.begin(at);
            None
        }
        CallMoment::End(at) => refuted(history, search.end(at), &history.calls[at]),
        CallMoment::Expired(at) => refuted(history, search.expire(at), &history.calls[at]),
    });
    let final_dump = || {
        let what = match search.ends_with(history.dumped(), history.key.class()) {
            SearchVerdict::Possible => return None,
            SearchVerdict::Impossible => "no order of the steps ends with the record in the dump",
            SearchVerdict::TooMany => "too many orders to decide on the dump; use fewer clients",
        };
        Some(history.violation(I15, what))
    };
    broken.or_else(final_dump).into_iter().collect()
}

/// Whether `call` may see the record as expired, by its own estimate of the time.
fn conditions(history: &KeyHistory<'_>, call: &HistoryCall<'_>) -> CallConditions {
    let writes = [
        ReplyKind::Granted,
        ReplyKind::Extended,
        ReplyKind::Recorded,
        ReplyKind::Open,
        ReplyKind::Lapsing,
    ];
    let written =
        |other: &&HistoryCall<'_>| other.reply().is_some_and(|answer| writes.contains(&answer));
    let before =
        |other: &&HistoryCall<'_>| other.ended().is_some_and(|ended| ended < call.invoked());
    let last = history.calls.iter().filter(written).filter(before).map(HistoryCall::invoked).max();
    let due = history.kept().is_some_and(|kept| {
        call.ended().is_none_or(|ended| ended >= last.unwrap_or_default() + kept)
    });
    CallConditions {
        class: history.key.class(),
        may_see_expired: due && history.rules.expires_by_estimate,
    }
}

fn refuted(
    history: &KeyHistory<'_>,
    verdict: SearchVerdict,
    call: &HistoryCall<'_>,
) -> Option<Violation> {
    let seq = call.end.map_or(0, |end| end.seq);
    let what = match verdict {
        SearchVerdict::Possible => return None,
        SearchVerdict::Impossible => format!(
            "line {seq}: {:?} cannot have been answered {:?} in any order",
            call.op(),
            call.reply()
        ),
        SearchVerdict::TooMany => {
            format!("line {seq}: too many orders to decide; use fewer clients")
        }
    };
    Some(history.violation(I15, what))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallMoment {
    // At equal times calls overlap, so begins are sorted first.
    Begin(usize),
    End(usize),
    Expired(usize),
}

fn moments(history: &KeyHistory<'_>) -> Vec<(u64, CallMoment)> {
    let mut moments = Vec::new();
    for (at, call) in history.calls.iter().enumerate().filter(|(_, call)| is_step(call)) {
        match call.ended() {
            Some(ended) => {
                moments.push((call.invoked(), CallMoment::Begin(at)));
                moments.push((ended, CallMoment::End(at)));
            }
            // An open call that only reads has no effect.
            None if !changes(call.op()) => {}
            None => {
                moments.push((call.invoked(), CallMoment::Begin(at)));
                moments.extend(
                    latest_effect(history, call).map(|latest| (latest, CallMoment::Expired(at))),
                );
            }
        }
    }
    moments.sort_unstable();
    moments
}

/// The latest time at which an open call can take effect: the end of its process where no call outlives that, or the
/// kill of the server to which it was sent.
fn latest_effect(history: &KeyHistory<'_>, call: &HistoryCall<'_>) -> Option<u64> {
    let death = history.deaths.get(&call.begin.process).copied();
    if history.rules.frees_at_open {
        return death;
    }
    let given_up = call.end.map(|end| end.t_mono).or(death)?;
    history.server_deaths.iter().find(|at| **at > given_up).copied()
}

fn is_step(call: &HistoryCall<'_>) -> bool {
    (changes(call.op()) || matches!(call.op(), Op::Renew | Op::Get))
        && call.reply() != Some(ReplyKind::Error)
}

const fn changes(op: Op) -> bool {
    matches!(op, Op::Claim | Op::Complete | Op::Release | Op::Abandon | Op::Forget | Op::Erase)
}
