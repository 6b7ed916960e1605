//! I15: the steps of a key fit into one order that respects time.
//!
//! A search over all orders, after Wing and Gong: calls are taken up when they begin, and when one ends
//! it must have happened in every order that is still possible. Open calls may happen at any later time;
//! where no call outlives its process, only until that is gone, and never after the end of a server that
//! they were sent to.

mod equivalence;
mod frontier;
mod model;
mod search;

use super::{
    Violation,
    invariant::Invariant::I15,
    key_history::{Call, Story},
};
use crate::event::{Answer, Op};
use equivalence::Twins;
use model::{Keeping, State};
use search::{Search, Verdict};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let twins = Twins::of(&story.calls, |call| too_late(story, call));
    let start = State::start(story.rules.has_front);
    let keeping: Vec<Keeping> = story.calls.iter().map(|call| keeping(story, call)).collect();
    let mut search = Search::new(keeping, start, &story.calls, twins);
    let broken = moments(story).into_iter().find_map(|(_, moment)| match moment {
        Moment::Begin(at) => {
            search.begin(at);
            None
        }
        Moment::End(at) => refuted(story, search.end(at), &story.calls[at]),
        Moment::Gone(at) => refuted(story, search.gone(at), &story.calls[at]),
    });
    let last = || {
        let what = match search.ends_with(story.dumped(), story.key.class()) {
            Verdict::Possible => return None,
            Verdict::Impossible => "no order of the steps ends with what is in the dump",
            Verdict::TooMany => "too many orders to decide on the dump; use fewer clients",
        };
        Some(story.broken(I15, what))
    };
    broken.or_else(last).into_iter().collect()
}

/// How the key is kept while `call` is under way.
fn keeping(story: &Story<'_>, call: &Call<'_>) -> Keeping {
    let writes =
        [Answer::Granted, Answer::Extended, Answer::Recorded, Answer::Open, Answer::Lapsing];
    let written = |other: &&Call<'_>| other.answer().is_some_and(|answer| writes.contains(&answer));
    let before = |other: &&Call<'_>| other.ended().is_some_and(|ended| ended < call.invoked());
    let last = story.calls.iter().filter(written).filter(before).map(Call::invoked).max();
    let due = story.kept().is_some_and(|kept| {
        call.ended().is_none_or(|ended| ended >= last.unwrap_or_default() + kept)
    });
    Keeping { class: story.key.class(), is_found_gone: due && story.rules.expires_by_estimate }
}

fn refuted(story: &Story<'_>, verdict: Verdict, call: &Call<'_>) -> Option<Violation> {
    let seq = call.end.map_or(0, |end| end.seq);
    let what = match verdict {
        Verdict::Possible => return None,
        Verdict::Impossible => format!(
            "line {seq}: {:?} cannot have been answered {:?} in any order",
            call.op(),
            call.answer()
        ),
        Verdict::TooMany => format!("line {seq}: too many orders to decide; use fewer clients"),
    };
    Some(story.broken(I15, what))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    // At equal times calls overlap: begins come first.
    Begin(usize),
    End(usize),
    Gone(usize),
}

fn moments(story: &Story<'_>) -> Vec<(u64, Moment)> {
    let mut moments = Vec::new();
    for (at, call) in story.calls.iter().enumerate().filter(|(_, call)| is_step(call)) {
        match call.ended() {
            Some(ended) => {
                moments.push((call.invoked(), Moment::Begin(at)));
                moments.push((ended, Moment::End(at)));
            }
            // An open call that could only look is of no consequence.
            None if !changes(call.op()) => {}
            None => {
                moments.push((call.invoked(), Moment::Begin(at)));
                moments.extend(too_late(story, call).map(|late| (late, Moment::Gone(at))));
            }
        }
    }
    moments.sort_unstable();
    moments
}

/// When a call without an answer has happened, if ever: with the end of its process where no call
/// outlives that, or with that of the server it was sent to, which took it along.
fn too_late(story: &Story<'_>, call: &Call<'_>) -> Option<u64> {
    let death = story.deaths.get(&call.begin.process).copied();
    if story.rules.frees_at_open {
        return death;
    }
    let given_up = call.end.map(|end| end.t_mono).or(death)?;
    story.server_deaths.iter().find(|at| **at > given_up).copied()
}

fn is_step(call: &Call<'_>) -> bool {
    (changes(call.op()) || matches!(call.op(), Op::Renew | Op::Get))
        && call.answer() != Some(Answer::Error)
}

const fn changes(op: Op) -> bool {
    matches!(op, Op::Claim | Op::Complete | Op::Release | Op::Abandon | Op::Forget | Op::Erase)
}
