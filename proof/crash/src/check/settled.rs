//! I14: after the faults every key comes to an end.

use super::{Violation, invariant::Invariant::I14, key_history::Story};
use crate::event::{Answer, Op};

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let state = story.dumped().and_then(|record| record.answer);
    let stuck = state.filter(|state| matches!(state, Answer::InProgress | Answer::Open));
    let stuck = stuck.filter(|_| !is_hidden(story));
    let what = |state| format!("settled for 20 s and still {state:?}");
    stuck.map(|state| story.broken(I14, what(state))).into_iter().collect()
}

/// Half a removal left a copy, which answers whoever asks, and nobody looks behind it until the removal is repeated.
fn is_hidden(story: &Story<'_>) -> bool {
    let is_half = story
        .calls
        .iter()
        .any(|call| matches!(call.op(), Op::Forget | Op::Erase) && call.told().is_none());
    let claims = story.calls.iter().filter(|call| call.op() == Op::Claim && call.told().is_some());
    let last = claims.max_by_key(|call| call.invoked()).and_then(|call| call.answer());
    story.rules.has_front && is_half && last == Some(Answer::Replay)
}
