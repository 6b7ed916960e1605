//! I14: after the faults every key reaches a final state.

use super::{Violation, invariant::Invariant::I14, key_history::KeyHistory};
use crate::event::{Op, ReplyKind};

pub(super) fn check(history: &KeyHistory<'_>) -> Vec<Violation> {
    let state = history.dumped().and_then(|record| record.reply);
    let stuck = state.filter(|state| matches!(state, ReplyKind::InProgress | ReplyKind::Open));
    let stuck = stuck.filter(|_| !is_hidden(history));
    let what = |state| format!("still {state:?} after it was called for 20 s without faults");
    stuck.map(|state| history.violation(I14, what(state))).into_iter().collect()
}

/// True when a copy in the front hides the key: a removal without a reply left the copy, which answers every claim, so
/// that none reaches the authority until the removal is repeated.
fn is_hidden(history: &KeyHistory<'_>) -> bool {
    let has_open_removal = history
        .calls
        .iter()
        .any(|call| matches!(call.op(), Op::Forget | Op::Erase) && call.reply_event().is_none());
    let claims =
        history.calls.iter().filter(|call| call.op() == Op::Claim && call.reply_event().is_some());
    let last = claims.max_by_key(|call| call.invoked()).and_then(|call| call.reply());
    history.rules.has_front && has_open_removal && last == Some(ReplyKind::Replay)
}
