//! The calls of a batch, by key.

use std::ops::Range;

use semel_core::{Error, KeyHash, Result};

use crate::{
    call::{Call, Said},
    chain::Found,
};

/// A batch on its way through the store: calls in the order of their keys, answers in the order of the
/// calls.
#[derive(Debug)]
pub(crate) struct Work {
    calls: Vec<Call>,
    /// Places of the calls, by key and then in their order.
    order: Vec<usize>,
    answers: Vec<Option<Result<Said>>>,
}

/// The calls for one key that are not answered yet.
#[derive(Debug)]
pub(crate) struct Group {
    /// In [`Work::order`].
    places: Range<usize>,
    pub(crate) found: Option<Found>,
    /// Its outcome is too large to be read along with others.
    pub(crate) heavy: bool,
}

impl Work {
    /// The batch, and its groups in the order of their keys.
    pub(crate) fn new(calls: Vec<Call>) -> (Self, Vec<Group>) {
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_unstable_by_key(|place| (calls[*place].key(), *place));
        let mut start = 0;
        let groups = order
            .chunk_by(|one, next| calls[*one].key() == calls[*next].key())
            .map(|chunk| {
                let places = start..start + chunk.len();
                start = places.end;
                Group { places, found: None, heavy: false }
            })
            .collect();
        let answers = calls.iter().map(|_| None).collect();
        (Self { calls, order, answers }, groups)
    }

    pub(crate) fn key(&self, group: &Group) -> &KeyHash {
        self.first(group).key()
    }

    /// The first call that is not answered.
    pub(crate) fn first(&self, group: &Group) -> &Call {
        &self.calls[self.order[group.places.start]]
    }

    /// The calls that are not answered.
    pub(crate) fn calls(&self, group: &Group) -> impl Iterator<Item = &Call> {
        self.order[group.places.clone()].iter().map(|place| &self.calls[*place])
    }

    /// Answers the first calls of a group.
    pub(crate) fn answer(&mut self, group: &mut Group, said: impl IntoIterator<Item = Said>) {
        for said in said {
            self.answers[self.order[group.places.start]] = Some(Ok(said));
            group.places.start += 1;
        }
    }

    /// Answers whatever is left of a group.
    pub(crate) fn fail(&mut self, group: &mut Group, error: &Error) {
        for place in &self.order[group.places.clone()] {
            self.answers[*place] = Some(Err(error.clone()));
        }
        group.places.start = group.places.end;
    }

    /// All answers; `missing` where there is none.
    pub(crate) fn into_answers(self, missing: &Error) -> Vec<Result<Said>> {
        let answer = |answer: Option<_>| answer.unwrap_or_else(|| Err(missing.clone()));
        self.answers.into_iter().map(answer).collect()
    }
}

impl Group {
    pub(crate) fn is_done(&self) -> bool {
        self.places.is_empty()
    }
}
