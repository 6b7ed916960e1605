//! I15: the steps of a key fit into one order that respects time.
//!
//! A search over all orders, after Wing and Gong: calls are taken up when they begin, and when one ends
//! it must have happened in every order that is still possible. Open calls may happen at any later time;
//! where no call outlives its process, only until that is gone.

mod model;
mod search;

use super::{
    Violation,
    invariant::Invariant::I15,
    story::{Call, Story},
};
use crate::event::{Answer, Op};
use search::{Search, Verdict};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut search = Search::new(story.key.class());
    let broken = moments(story).into_iter().find_map(|(_, moment)| match moment {
        Moment::Begin(at) => {
            search.begin(at);
            None
        }
        Moment::End(at) => refuted(story, search.end(at, &story.calls), &story.calls[at]),
        Moment::Gone(at) => refuted(story, search.gone(at, &story.calls), &story.calls[at]),
    });
    let last = || {
        let what = match search.ends_with(story.dumped(), &story.calls) {
            Verdict::Possible => return None,
            Verdict::Impossible => "no order of the steps ends with what is in the dump",
            Verdict::TooMany => "too many orders to decide on the dump; use fewer clients",
        };
        Some(story.broken(I15, what))
    };
    broken.or_else(last).into_iter().collect()
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
                let death = story.deaths.get(&call.begin.process);
                let gone = death.filter(|_| story.rules.frees_at_open);
                moments.extend(gone.map(|death| (*death, Moment::Gone(at))));
            }
        }
    }
    moments.sort_unstable();
    moments
}

fn is_step(call: &Call<'_>) -> bool {
    (changes(call.op()) || matches!(call.op(), Op::Renew | Op::Get))
        && call.answer() != Some(Answer::Error)
}

const fn changes(op: Op) -> bool {
    matches!(op, Op::Claim | Op::Complete | Op::Release | Op::Abandon | Op::Forget | Op::Erase)
}
