//! I14: after the faults every key comes to an end.

use super::{Violation, invariant::Invariant::I14, story::Story};
use crate::event::Answer;

pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let state = story.dumped().and_then(|record| record.answer);
    let stuck = state.filter(|state| matches!(state, Answer::InProgress | Answer::Open));
    let what = |state| format!("settled for 20 s and still {state:?}");
    stuck.map(|state| story.broken(I14, what(state))).into_iter().collect()
}
