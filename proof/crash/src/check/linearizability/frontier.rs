//! The places that a search has to look at. Of two with the same state, one that has more answers behind
//! it that change nothing, and more open calls before it, can do whatever the other can: only that one is
//! kept.

use std::collections::HashMap;

use super::model::State;

/// A state, and which of the calls under way have happened by then.
pub(super) type Place = (State, Happened);

/// Calls that have happened, in order of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Happened {
    /// Their callers are told, and they change nothing: they are out of the way.
    idle: Vec<usize>,
    /// Their callers are told.
    told: Vec<usize>,
    /// Nobody is told: each is a chance used up.
    open: Vec<usize>,
}

/// What a call that happens means for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Idle,
    Told,
    Open,
}

impl Happened {
    pub(super) fn has(&self, at: usize) -> bool {
        [&self.idle, &self.told, &self.open].iter().any(|it| it.binary_search(&at).is_ok())
    }

    pub(super) fn add(&mut self, at: usize, weight: Weight) {
        let sorted = match weight {
            Weight::Idle => &mut self.idle,
            Weight::Told => &mut self.told,
            Weight::Open => &mut self.open,
        };
        if let Err(place) = sorted.binary_search(&at) {
            sorted.insert(place, at);
        }
    }

    pub(super) fn without(mut self, at: usize) -> Self {
        for calls in [&mut self.idle, &mut self.told, &mut self.open] {
            calls.retain(|other| *other != at);
        }
        self
    }

    /// True when nothing can be done from `other` that cannot be done from here.
    fn is_as_good_as(&self, other: &Self) -> bool {
        self.told == other.told
            && includes(&self.idle, &other.idle)
            && includes(&other.open, &self.open)
    }
}

fn includes(all: &[usize], some: &[usize]) -> bool {
    some.len() <= all.len() && some.iter().all(|at| all.binary_search(at).is_ok())
}

/// Places, none of which another makes superfluous.
#[derive(Debug, Default)]
pub(super) struct Front {
    places: HashMap<State, Vec<Happened>>,
    /// The most places that one state has had.
    widest: usize,
}

impl Front {
    /// True when it was worth it.
    pub(super) fn insert(&mut self, (state, happened): Place) -> bool {
        let known = self.places.entry(state).or_default();
        if known.iter().any(|it| it.is_as_good_as(&happened)) {
            return false;
        }
        known.retain(|it| !happened.is_as_good_as(it));
        known.push(happened);
        self.widest = self.widest.max(known.len());
        true
    }

    pub(super) fn has(&self, (state, happened): &Place) -> bool {
        self.places.get(state).is_some_and(|known| known.contains(happened))
    }

    /// True when so many places have one state that comparing them takes too long.
    pub(super) const fn is_crowded(&self) -> bool {
        self.widest > 1000
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.places.iter().flat_map(|(state, known)| {
            known.iter().map(move |happened| (state.clone(), happened.clone()))
        })
    }

    pub(super) fn into_places(self) -> impl Iterator<Item = Place> {
        self.places.into_iter().flat_map(|(state, known)| {
            known.into_iter().map(move |happened| (state.clone(), happened))
        })
    }
}

impl FromIterator<Place> for Front {
    fn from_iter<T: IntoIterator<Item = Place>>(places: T) -> Self {
        let mut front = Self::default();
        for place in places {
            front.insert(place);
        }
        front
    }
}
