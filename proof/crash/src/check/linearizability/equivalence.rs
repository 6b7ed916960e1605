//! Open calls that are indistinguishable. The search tries one order of them instead of all: a server that is down
//! for a second leaves more open calls than can be ordered.

use std::collections::{HashMap, HashSet};

use super::model::ANONYMOUS;
use crate::{
    check::key_history::HistoryCall,
    event::{Hex, Op},
};

/// Groups of calls that are indistinguishable.
pub(super) struct EquivalentCalls {
    /// Per call: its group, and the latest time at which it can take effect.
    groups: Vec<(usize, u64)>,
    anonymous: HashSet<usize>,
}

/// Open calls with the same signature are indistinguishable.
type CallSignature = (Op, Option<u8>, Option<Hex>, Option<u64>, Option<Hex>);

impl EquivalentCalls {
    /// `latest_effect` returns the latest time at which an open call can take effect.
    pub(super) fn of(
        calls: &[HistoryCall<'_>],
        latest_effect: impl Fn(&HistoryCall<'_>) -> Option<u64>,
    ) -> Self {
        let known = known_nonces(calls);
        let (mut groups, mut anonymous) = (Vec::new(), HashSet::new());
        let mut signatures: HashMap<CallSignature, usize> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            if call.reply_event().is_some() {
                groups.push((at, u64::MAX));
                continue;
            }
            let request = &call.begin.detail;
            let is_anonymous =
                call.op() == Op::Claim && request.nonce.is_some_and(|it| !known.contains(&it));
            anonymous.extend(is_anonymous.then_some(at));
            let nonce = if is_anonymous { Some(ANONYMOUS) } else { request.nonce };
            let signature = (call.op(), request.fingerprint, nonce, request.token, request.digest);
            // A group is named by its first call.
            groups.push((
                *signatures.entry(signature).or_insert(at),
                latest_effect(call).unwrap_or(u64::MAX),
            ));
        }
        Self { groups, anonymous }
    }

    /// The nonce of a call, or [`ANONYMOUS`].
    pub(super) fn nonce(&self, at: usize, call: &HistoryCall<'_>) -> Hex {
        if self.anonymous.contains(&at) { ANONYMOUS } else { call.nonce().unwrap_or(Hex(0)) }
    }

    /// One call of each group: the one whose time ends first.
    pub(super) fn representatives(&self, calls: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut representatives: Vec<usize> = Vec::new();
        for at in calls {
            let (group, latest) = self.groups[at];
            match representatives.iter_mut().find(|first| self.groups[**first].0 == group) {
                Some(first) if (latest, at) < (self.groups[*first].1, *first) => *first = at,
                Some(_) => {}
                None => representatives.push(at),
            }
        }
        representatives
    }
}

/// Nonces that occur outside of open claims. If exactly one claim was sent repeatedly, its nonce is among them,
/// because its copies are one owner. With several such claims there would be too many orders to search.
fn known_nonces(calls: &[HistoryCall<'_>]) -> HashSet<Hex> {
    let (mut known, mut claimed, mut again) = (HashSet::new(), HashSet::new(), HashSet::new());
    for call in calls {
        known.extend(call.reply_event().and_then(|end| end.detail.nonce));
        match call.nonce() {
            Some(nonce) if call.op() != Op::Claim => drop(known.insert(nonce)),
            Some(nonce) if !claimed.insert(nonce) => drop(again.insert(nonce)),
            Some(_) | None => {}
        }
    }
    again.retain(|nonce| !known.contains(nonce));
    if again.len() == 1 {
        known.extend(again);
    }
    known
}
