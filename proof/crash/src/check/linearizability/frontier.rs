//! The positions that the search still has to visit. Of two positions with the same state, the one that has applied
//! more answered calls without a change, and fewer open calls, can reach everything that the other can: only that one
//! is kept.

use std::collections::HashMap;

use super::model::KeyState;

/// A state of the key, and the pending calls that have been applied by then.
pub(super) type Position = (KeyState, AppliedCalls);

/// Calls that have been applied, in order of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppliedCalls {
    /// Answered calls that change nothing.
    unchanged: Vec<usize>,
    /// Answered calls that change the key.
    answered: Vec<usize>,
    /// Open calls: each can be applied once.
    open: Vec<usize>,
}

/// What applying a call means for the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Unchanged,
    Answered,
    Open,
}

impl AppliedCalls {
    pub(super) fn has(&self, at: usize) -> bool {
        [&self.unchanged, &self.answered, &self.open].iter().any(|it| it.binary_search(&at).is_ok())
    }

    pub(super) fn add(&mut self, at: usize, effect: CallEffect) {
        let sorted = match effect {
            CallEffect::Unchanged => &mut self.unchanged,
            CallEffect::Answered => &mut self.answered,
            CallEffect::Open => &mut self.open,
        };
        if let Err(position) = sorted.binary_search(&at) {
            sorted.insert(position, at);
        }
    }

    pub(super) fn without(mut self, at: usize) -> Self {
        for calls in [&mut self.unchanged, &mut self.answered, &mut self.open] {
            calls.retain(|other| *other != at);
        }
        self
    }

    /// True when every position that can be reached from `other` can be reached from here.
    fn dominates(&self, other: &Self) -> bool {
        self.answered == other.answered
            && includes(&self.unchanged, &other.unchanged)
            && includes(&other.open, &self.open)
    }
}

fn includes(all: &[usize], some: &[usize]) -> bool {
    some.len() <= all.len() && some.iter().all(|at| all.binary_search(at).is_ok())
}

/// Positions of which none dominates another.
#[derive(Debug, Default)]
pub(super) struct Frontier {
    positions: HashMap<KeyState, Vec<AppliedCalls>>,
    /// The largest number of positions that one state has had.
    widest: usize,
}

impl Frontier {
    /// Adds a position. False when another one dominates it.
    pub(super) fn insert(&mut self, (state, applied): Position) -> bool {
        let known = self.positions.entry(state).or_default();
        if known.iter().any(|it| it.dominates(&applied)) {
            return false;
        }
        known.retain(|it| !applied.dominates(it));
        known.push(applied);
        self.widest = self.widest.max(known.len());
        true
    }

    pub(super) fn has(&self, (state, applied): &Position) -> bool {
        self.positions.get(state).is_some_and(|known| known.contains(applied))
    }

    /// True when one state has so many positions that comparing them takes too long.
    pub(super) const fn is_crowded(&self) -> bool {
        self.widest > 1000
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.positions.iter().flat_map(|(state, known)| {
            known.iter().map(move |applied| (state.clone(), applied.clone()))
        })
    }

    pub(super) fn into_positions(self) -> impl Iterator<Item = Position> {
        self.positions.into_iter().flat_map(|(state, known)| {
            known.into_iter().map(move |applied| (state.clone(), applied))
        })
    }
}

impl FromIterator<Position> for Frontier {
    fn from_iter<T: IntoIterator<Item = Position>>(positions: T) -> Self {
        let mut front = Self::default();
        for position in positions {
            front.insert(position);
        }
        front
    }
}
