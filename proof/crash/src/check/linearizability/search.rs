//! The search over orders.

use std::collections::VecDeque;

use super::{
    equivalence::Twins,
    frontier::{Front, Happened, Place, Weight},
    model::{Keeping, State, is_idle},
};
use crate::{check::key_history::Call, event::Detail, key::Class};

pub(super) enum Verdict {
    Possible,
    Impossible,
    TooMany,
}

pub(super) struct Search<'a> {
    /// Of each call.
    keeping: Vec<Keeping>,
    calls: &'a [Call<'a>],
    twins: Twins,
    places: Front,
    under_way: Vec<usize>,
}

impl<'a> Search<'a> {
    /// More places than this are not looked at.
    const MOST: usize = 50_000;

    pub(super) fn new(
        keeping: Vec<Keeping>,
        start: State,
        calls: &'a [Call<'a>],
        twins: Twins,
    ) -> Self {
        let mut places = Front::default();
        places.insert((start, Happened::default()));
        Self { keeping, calls, twins, places, under_way: Vec::new() }
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.under_way.push(at);
    }

    /// The call has been answered: only orders in which it happened remain.
    pub(super) fn end(&mut self, at: usize) -> Verdict {
        let happened = |(_, happened): &Place| happened.has(at);
        let Some(reached) = self.explore(happened) else { return Verdict::TooMany };
        self.forget(at, reached.into_places().filter(happened));
        if self.places.is_empty() { Verdict::Impossible } else { Verdict::Possible }
    }

    /// What was called has happened by now, or never will.
    pub(super) fn gone(&mut self, at: usize) -> Verdict {
        let Some(reached) = self.explore(|_| false) else { return Verdict::TooMany };
        self.forget(at, reached.into_places());
        Verdict::Possible
    }

    fn forget(&mut self, at: usize, places: impl Iterator<Item = Place>) {
        self.under_way.retain(|other| *other != at);
        self.places = places.map(|(state, happened)| (state, happened.without(at))).collect();
    }

    /// Whether some order ends with what was seen.
    pub(super) fn ends_with(&self, seen: Option<&Detail>, class: Class) -> Verdict {
        let Some(reached) = self.explore(|_| false) else { return Verdict::TooMany };
        if reached.into_places().any(|(state, _)| state.shows(seen, class)) {
            Verdict::Possible
        } else {
            Verdict::Impossible
        }
    }

    /// Every place worth being at that can be reached from here. Those that `enough` names are not left
    /// again.
    fn explore(&self, enough: impl Fn(&Place) -> bool) -> Option<Front> {
        let mut fresh: VecDeque<Place> = self.places.places().map(|it| self.idle(it)).collect();
        let mut seen: Front = fresh.iter().cloned().collect();
        let mut looked_at = 0;
        // Those with fewer open calls behind them first: they make others superfluous.
        while let Some(place) = fresh.pop_front() {
            if enough(&place) || !seen.has(&place) {
                continue;
            }
            for (next, weight) in self.next(&place) {
                let next = self.idle(next);
                match (seen.insert(next.clone()), weight) {
                    (true, Weight::Open) => fresh.push_back(next),
                    (true, Weight::Told | Weight::Idle) => fresh.push_front(next),
                    (false, _) => {}
                }
            }
            looked_at += 1;
            if looked_at > Self::MOST || seen.is_crowded() {
                return None;
            }
        }
        Some(seen)
    }

    /// Calls that were told something here and change nothing anywhere have happened as soon as they
    /// can: later would not be better, and every moment they might have is an order more.
    fn idle(&self, (state, mut happened): Place) -> Place {
        let waiting = self.under_way.iter().filter(|at| !happened.has(**at));
        let idle = |at: &&usize| state.is_unmoved_by(&self.calls[**at], self.keeping[**at]);
        let idle: Vec<usize> = waiting.filter(idle).copied().collect();
        idle.into_iter().for_each(|at| happened.add(at, Weight::Idle));
        (state, happened)
    }

    /// Where one more call leads, and what it means for the rest.
    fn next(&self, (state, happened): &Place) -> impl Iterator<Item = (Place, Weight)> {
        let waiting = self.under_way.iter().filter(|at| !happened.has(**at)).copied();
        self.twins.firsts(waiting).into_iter().flat_map(move |at| {
            let call = &self.calls[at];
            let weight = weight(call);
            let states =
                state.after(call, self.twins.nonce(at, call), self.keeping[at]).into_iter();
            // An open call that changes nothing might as well not have happened.
            let moves = move |next: &State| weight != Weight::Open || next != state;
            states.filter(moves).map(move |next| {
                let mut happened = happened.clone();
                happened.add(at, weight);
                ((next, happened), weight)
            })
        })
    }
}

fn weight(call: &Call<'_>) -> Weight {
    match call.told() {
        None => Weight::Open,
        Some(_) if is_idle(call) => Weight::Idle,
        Some(_) => Weight::Told,
    }
}
