//! Searches the orders in which the calls of a key can have taken effect.

use std::collections::VecDeque;

use super::{
    equivalence::EquivalentCalls,
    frontier::{AppliedCalls, CallEffect, Frontier, Position},
    model::{CallConditions, KeyState, changes_nothing},
};
use crate::{check::key_history::HistoryCall, event::Detail, key::KeyClass};

pub(super) enum SearchVerdict {
    Possible,
    Impossible,
    TooMany,
}

pub(super) struct OrderSearch<'a> {
    /// One per call.
    conditions: Vec<CallConditions>,
    calls: &'a [HistoryCall<'a>],
    equivalent: EquivalentCalls,
    positions: Frontier,
    pending: Vec<usize>,
}

impl<'a> OrderSearch<'a> {
    /// The search gives up after this many positions.
    const MAX_POSITIONS: usize = 50_000;

    pub(super) fn new(
        conditions: Vec<CallConditions>,
        start: KeyState,
        calls: &'a [HistoryCall<'a>],
        equivalent: EquivalentCalls,
    ) -> Self {
        let mut positions = Frontier::default();
        positions.insert((start, AppliedCalls::default()));
        Self { conditions, calls, equivalent, positions, pending: Vec::new() }
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.pending.push(at);
    }

    /// The call has been answered: only positions at which it has been applied remain.
    pub(super) fn end(&mut self, at: usize) -> SearchVerdict {
        let applied = |(_, applied): &Position| applied.has(at);
        let Some(reached) = self.explore(applied) else { return SearchVerdict::TooMany };
        self.forget(at, reached.into_positions().filter(applied));
        if self.positions.is_empty() { SearchVerdict::Impossible } else { SearchVerdict::Possible }
    }

    /// The open call can take effect no longer: it was applied by now, or never will be.
    pub(super) fn expire(&mut self, at: usize) -> SearchVerdict {
        let Some(reached) = self.explore(|_| false) else { return SearchVerdict::TooMany };
        self.forget(at, reached.into_positions());
        SearchVerdict::Possible
    }

    fn forget(&mut self, at: usize, positions: impl Iterator<Item = Position>) {
        self.pending.retain(|other| *other != at);
        self.positions = positions.map(|(state, applied)| (state, applied.without(at))).collect();
    }

    /// Whether some order ends with the record in the dump.
    pub(super) fn ends_with(&self, seen: Option<&Detail>, class: KeyClass) -> SearchVerdict {
        let Some(reached) = self.explore(|_| false) else { return SearchVerdict::TooMany };
        if reached.into_positions().any(|(state, _)| state.shows(seen, class)) {
            SearchVerdict::Possible
        } else {
            SearchVerdict::Impossible
        }
    }

    /// All positions that can be reached from here and are not dominated. Positions for which `enough` is true are
    /// not left again.
    fn explore(&self, enough: impl Fn(&Position) -> bool) -> Option<Frontier> {
        let mut fresh: VecDeque<Position> =
            self.positions.positions().map(|it| self.apply_unchanged(it)).collect();
        let mut seen: Frontier = fresh.iter().cloned().collect();
        let mut visited = 0;
        // Positions with fewer applied open calls come first, because they dominate others.
        while let Some(position) = fresh.pop_front() {
            if enough(&position) || !seen.has(&position) {
                continue;
            }
            for (next, effect) in self.next(&position) {
                let next = self.apply_unchanged(next);
                match (seen.insert(next.clone()), effect) {
                    (true, CallEffect::Open) => fresh.push_back(next),
                    (true, CallEffect::Answered | CallEffect::Unchanged) => fresh.push_front(next),
                    (false, _) => {}
                }
            }
            visited += 1;
            if visited > Self::MAX_POSITIONS || seen.is_crowded() {
                return None;
            }
        }
        Some(seen)
    }

    /// Applies the answered calls that change nothing and whose reply is possible here. Applying them later would allow
    /// nothing more, and would only add orders.
    fn apply_unchanged(&self, (state, mut applied): Position) -> Position {
        let waiting = self.pending.iter().filter(|at| !applied.has(**at));
        let fits = |at: &&usize| state.is_unchanged_by(&self.calls[**at], self.conditions[**at]);
        let unchanged: Vec<usize> = waiting.filter(fits).copied().collect();
        unchanged.into_iter().for_each(|at| applied.add(at, CallEffect::Unchanged));
        (state, applied)
    }

    /// The positions after one more call.
    fn next(&self, (state, applied): &Position) -> impl Iterator<Item = (Position, CallEffect)> {
        let waiting = self.pending.iter().filter(|at| !applied.has(**at)).copied();
        self.equivalent.representatives(waiting).into_iter().flat_map(move |at| {
            let call = &self.calls[at];
            let effect = effect(call);
            let states =
                state.after(call, self.equivalent.nonce(at, call), self.conditions[at]).into_iter();
            // An open call that changes nothing need not be applied.
            let moves = move |next: &KeyState| effect != CallEffect::Open || next != state;
            states.filter(moves).map(move |next| {
                let mut applied = applied.clone();
                applied.add(at, effect);
                ((next, applied), effect)
            })
        })
    }
}

fn effect(call: &HistoryCall<'_>) -> CallEffect {
    match call.reply_event() {
        None => CallEffect::Open,
        Some(_) if changes_nothing(call) => CallEffect::Unchanged,
        Some(_) => CallEffect::Answered,
    }
}
