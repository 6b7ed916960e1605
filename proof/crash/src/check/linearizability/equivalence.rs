//! Calls without an answer that nobody can tell apart. One order of them stands for all: without that a
//! server that is away for a second leaves more orders than can be searched.

use std::collections::{HashMap, HashSet};

use super::model::GHOST;
use crate::{
    check::key_history::Call,
    event::{Hex, Op},
};

/// Which calls are alike.
pub(super) struct Twins {
    /// Per call: its kind, and when it is too late for it. Calls of one kind are alike.
    kinds: Vec<(usize, u64)>,
    ghosts: HashSet<usize>,
}

/// What tells open calls apart.
type Look = (Op, Option<u8>, Option<Hex>, Option<u64>, Option<Hex>);

impl Twins {
    /// `too_late` says when an open call cannot happen any more.
    pub(super) fn of(calls: &[Call<'_>], too_late: impl Fn(&Call<'_>) -> Option<u64>) -> Self {
        let heard = heard_of(calls);
        let (mut kinds, mut ghosts) = (Vec::new(), HashSet::new());
        let mut looks: HashMap<Look, usize> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            if call.told().is_some() {
                kinds.push((at, u64::MAX));
                continue;
            }
            let asked = &call.begin.detail;
            let ghost =
                call.op() == Op::Claim && asked.nonce.is_some_and(|it| !heard.contains(&it));
            ghosts.extend(ghost.then_some(at));
            let nonce = if ghost { Some(GHOST) } else { asked.nonce };
            let look = (call.op(), asked.fingerprint, nonce, asked.token, asked.digest);
            // The first of a kind names it.
            kinds.push((*looks.entry(look).or_insert(at), too_late(call).unwrap_or(u64::MAX)));
        }
        Self { kinds, ghosts }
    }

    /// The nonce that counts for a call.
    pub(super) fn nonce(&self, at: usize, call: &Call<'_>) -> Hex {
        if self.ghosts.contains(&at) { GHOST } else { call.nonce().unwrap_or(Hex(0)) }
    }

    /// Of each kind the call for which it is too late first.
    pub(super) fn firsts(&self, calls: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut firsts: Vec<usize> = Vec::new();
        for at in calls {
            let (kind, late) = self.kinds[at];
            match firsts.iter_mut().find(|first| self.kinds[**first].0 == kind) {
                Some(first) if (late, at) < (self.kinds[*first].1, *first) => *first = at,
                Some(_) => {}
                None => firsts.push(at),
            }
        }
        firsts
    }
}

/// Nonces that occur anywhere but in claims without an answer. That of a claim that was sent again is among
/// them, where it is the only one: its copies are one owner. Of several the orders are too many to search.
fn heard_of(calls: &[Call<'_>]) -> HashSet<Hex> {
    let (mut heard, mut claimed, mut again) = (HashSet::new(), HashSet::new(), HashSet::new());
    for call in calls {
        heard.extend(call.told().and_then(|end| end.detail.nonce));
        match call.nonce() {
            Some(nonce) if call.op() != Op::Claim => drop(heard.insert(nonce)),
            Some(nonce) if !claimed.insert(nonce) => drop(again.insert(nonce)),
            Some(_) | None => {}
        }
    }
    again.retain(|nonce| !heard.contains(nonce));
    if again.len() == 1 {
        heard.extend(again);
    }
    heard
}
