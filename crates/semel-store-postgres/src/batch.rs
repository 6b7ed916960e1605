//! The calls of a batch, by key.

use std::ops::Range;

use semel_core::{
    Error, KeyHash, Result,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    request::{Asked, Told},
    slow_path::decide::Found,
};

/// A batch on its way through the store: calls in the order of their keys, answers in the order of the
/// calls.
#[derive(Debug)]
pub(crate) struct Work {
    calls: Vec<Asked>,
    /// Places of the calls, by key and then in their order.
    order: Vec<usize>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum Answer {
    Missing,
    Told(Result<StoreReply>),
    /// The call goes back to its caller.
    Locked,
}

/// The calls for one key that are not answered yet.
#[derive(Debug)]
pub(crate) struct Group {
    /// In [`Work::order`].
    places: Range<usize>,
    pub(crate) found: Option<Found>,
    /// Its outcome is too large to be read along with others.
    pub(crate) heavy: bool,
    /// It may be locked: a statement that it was part of met a lock, now or in an earlier batch.
    pub(crate) suspect: bool,
}

impl Work {
    /// The batch, and its groups in the order of their keys.
    pub(crate) fn new(calls: Vec<Asked>) -> (Self, Vec<Group>) {
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_unstable_by_key(|place| (calls[*place].call.key(), *place));
        let mut start = 0;
        let groups = order
            .chunk_by(|one, next| calls[*one].call.key() == calls[*next].call.key())
            .map(|chunk| {
                let places = start..start + chunk.len();
                start = places.end;
                let suspect = chunk.iter().any(|place| calls[*place].again);
                Group { places, found: None, heavy: false, suspect }
            })
            .collect();
        let answers = calls.iter().map(|_| Answer::Missing).collect();
        (Self { calls, order, answers }, groups)
    }

    pub(crate) fn key(&self, group: &Group) -> &KeyHash {
        self.first(group).key()
    }

    /// The first call that is not answered.
    pub(crate) fn first(&self, group: &Group) -> &StoreRequest {
        &self.calls[self.order[group.places.start]].call
    }

    /// The calls that are not answered.
    pub(crate) fn calls(&self, group: &Group) -> impl Iterator<Item = &StoreRequest> {
        self.order[group.places.clone()].iter().map(|place| &self.calls[*place].call)
    }

    /// Answers the first calls of a group.
    pub(crate) fn answer(&mut self, group: &mut Group, said: impl IntoIterator<Item = StoreReply>) {
        for said in said {
            self.answers[self.order[group.places.start]] = Answer::Told(Ok(said));
            group.places.start += 1;
        }
    }

    /// Answers whatever is left of a group.
    pub(crate) fn fail(&mut self, group: &mut Group, error: &Error) {
        for place in &self.order[group.places.clone()] {
            self.answers[*place] = Answer::Told(Err(error.clone()));
        }
        group.places.start = group.places.end;
    }

    /// Gives back whatever is left of a group: somebody else has locked its record.
    pub(crate) fn give_back(&mut self, group: &mut Group) {
        for place in &self.order[group.places.clone()] {
            self.answers[*place] = Answer::Locked;
        }
        group.places.start = group.places.end;
    }

    /// All answers; `missing` where there is none.
    pub(crate) fn into_answers(self, missing: &Error) -> Vec<Result<Told>> {
        let answer = |(asked, answer): (Asked, Answer)| match answer {
            Answer::Missing => Err(missing.clone()),
            Answer::Told(said) => said.map(Told::StoreReply),
            Answer::Locked => Ok(Told::Locked(asked.call)),
        };
        self.calls.into_iter().zip(self.answers).map(answer).collect()
    }
}

impl Group {
    pub(crate) fn is_done(&self) -> bool {
        self.places.is_empty()
    }
}
