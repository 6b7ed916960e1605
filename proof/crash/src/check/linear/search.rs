//! The search over orders.

use std::collections::HashSet;

use super::{model::State, twins::Twins};
use crate::{check::story::Call, event::Detail, key::Class};

/// A state, and which of the calls under way have happened by then.
type Place = (State, Vec<usize>);

pub(super) enum Verdict {
    Possible,
    Impossible,
    TooMany,
}

pub(super) struct Search<'a> {
    class: Class,
    calls: &'a [Call<'a>],
    twins: Twins,
    places: HashSet<Place>,
    under_way: Vec<usize>,
}

impl<'a> Search<'a> {
    /// More orders than this are not looked at.
    const MOST: usize = 50_000;

    pub(super) fn new(class: Class, calls: &'a [Call<'a>], twins: Twins) -> Self {
        let places = HashSet::from([(State::ABSENT, Vec::new())]);
        Self { class, calls, twins, places, under_way: Vec::new() }
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.under_way.push(at);
    }

    /// The call has been answered: only orders in which it happened remain.
    pub(super) fn end(&mut self, at: usize) -> Verdict {
        let happened = |(_, done): &Place| done.contains(&at);
        let Some(reached) = self.explore(happened) else { return Verdict::TooMany };
        self.forget(at, reached.into_iter().filter(happened));
        if self.places.is_empty() { Verdict::Impossible } else { Verdict::Possible }
    }

    /// What was called has happened by now, or never will.
    pub(super) fn gone(&mut self, at: usize) -> Verdict {
        let Some(reached) = self.explore(|_| false) else { return Verdict::TooMany };
        self.forget(at, reached.into_iter());
        Verdict::Possible
    }

    fn forget(&mut self, at: usize, places: impl Iterator<Item = Place>) {
        self.under_way.retain(|other| *other != at);
        self.places = places.map(|place| without(place, at)).collect();
    }

    /// Whether some order ends with what was seen.
    pub(super) fn ends_with(&self, seen: Option<&Detail>) -> Verdict {
        let Some(reached) = self.explore(|_| false) else { return Verdict::TooMany };
        if reached.iter().any(|(state, _)| state.shows(seen, self.class)) {
            Verdict::Possible
        } else {
            Verdict::Impossible
        }
    }

    /// Every place that can be reached from here. Those that `enough` names are not left again.
    fn explore(&self, enough: impl Fn(&Place) -> bool) -> Option<HashSet<Place>> {
        let mut seen: HashSet<Place> = self.places.iter().map(|it| self.idle(it.clone())).collect();
        let mut fresh: Vec<Place> = seen.iter().cloned().collect();
        while let Some(place) = fresh.pop() {
            if enough(&place) {
                continue;
            }
            for next in self.next(&place) {
                let next = self.idle(next);
                if seen.insert(next.clone()) {
                    fresh.push(next);
                }
            }
            if seen.len() > Self::MOST {
                return None;
            }
        }
        Some(seen)
    }

    /// Calls that were told something here and change nothing anywhere have happened as soon as they
    /// can: later would not be better, and every moment they might have is an order more.
    fn idle(&self, (state, mut done): Place) -> Place {
        let waiting = self.under_way.iter().filter(|at| !done.contains(at));
        let idle = |at: &&usize| state.is_unmoved_by(&self.calls[**at], self.class);
        let idle: Vec<usize> = waiting.filter(idle).copied().collect();
        done.extend(idle);
        done.sort_unstable();
        (state, done)
    }

    fn next(&self, (state, done): &Place) -> impl Iterator<Item = Place> {
        let waiting = self.under_way.iter().filter(|at| !done.contains(at)).copied();
        self.twins.firsts(waiting).into_iter().flat_map(move |at| {
            let call = &self.calls[at];
            let open = call.told().is_none();
            let states = state.after(call, self.twins.nonce(at, call), self.class).into_iter();
            // An open call that changes nothing might as well not have happened.
            states.filter(move |next| !open || next != state).map(move |next| {
                let mut done = done.clone();
                done.push(at);
                done.sort_unstable();
                (next, done)
            })
        })
    }
}

fn without((state, mut done): Place, at: usize) -> Place {
    done.retain(|other| *other != at);
    (state, done)
}
