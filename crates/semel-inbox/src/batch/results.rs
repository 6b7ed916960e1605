//! The results of a batch: what the handlers returned, and what each event's caller gets.

use std::{collections::HashMap, sync::Arc};

use semel_core::{Error, Outcome, Verdict, WorkError};
use serde::{Serialize, de::DeserializeOwned};

use super::{EventBatch, EventState};
use crate::{
    Done, InboxError,
    process::{duplicate, failure},
};

/// The results of a batch, by the index of the event.
pub(super) struct BatchResults<T> {
    pub(super) values: HashMap<usize, T>,
    /// Successes and final failures.
    pub(super) outcomes: HashMap<usize, Outcome>,
    /// Events to retry.
    pub(super) open: HashMap<usize, WorkError>,
    /// The recorded outcomes of duplicates, by event id.
    pub(super) recorded: HashMap<String, Arc<Outcome>>,
}

impl<T> Default for BatchResults<T> {
    fn default() -> Self {
        let (values, outcomes) = (HashMap::new(), HashMap::new());
        Self { values, outcomes, open: HashMap::new(), recorded: HashMap::new() }
    }
}

impl<T: Serialize + DeserializeOwned> BatchResults<T> {
    pub(super) fn succeeded(&mut self, at: usize, value: T) {
        if let Verdict::Final(outcome) = Verdict::success(&value) {
            self.outcomes.insert(at, outcome);
        }
        self.values.insert(at, value);
    }

    pub(super) fn failed(&mut self, at: usize, verdict: Verdict) {
        match verdict {
            Verdict::Final(outcome) => drop(self.outcomes.insert(at, outcome)),
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                self.open.insert(at, error);
            }
        }
    }

    pub(super) fn into_results(
        mut self,
        batch: &EventBatch<'_>,
    ) -> Vec<Result<Done<T>, InboxError>> {
        // Copies first: they read the values that the results below take out.
        let copies: HashMap<usize, _> = batch
            .states
            .iter()
            .enumerate()
            .filter_map(|(at, state)| {
                let EventState::CopyOf(first) = *state else { return None };
                Some((at, self.result_of_copy(batch, first)))
            })
            .collect();
        let mut copies = copies;
        (0..batch.states.len())
            .map(|at| copies.remove(&at).unwrap_or_else(|| self.result(batch, at)))
            .collect()
    }

    fn result(&mut self, batch: &EventBatch<'_>, at: usize) -> Result<Done<T>, InboxError> {
        match batch.states[at] {
            EventState::Busy | EventState::CopyOf(_) => Ok(Done::Busy),
            EventState::Refused => Err(batch.refusal(at)),
            EventState::Duplicate => duplicate(self.recorded.get(&batch.ids[at]).map(|it| &**it)),
            EventState::New => match (self.values.remove(&at), self.open.remove(&at)) {
                (Some(value), _) => Ok(Done::Now(value)),
                (None, Some(error)) => Err(InboxError::Retry(error)),
                (None, None) => Err(self.outcomes.get(&at).map_or_else(
                    || InboxError::Store(Error::invalid("inbox: an event without a result")),
                    |outcome| failure(outcome, false),
                )),
            },
        }
    }

    /// For a copy of an event in the same batch: the result of the first, or busy if the first has to be retried.
    fn result_of_copy(&self, batch: &EventBatch<'_>, first: usize) -> Result<Done<T>, InboxError> {
        match batch.states[first] {
            EventState::New => {
                self.outcomes.get(&first).map_or(Ok(Done::Busy), |it| duplicate(Some(it)))
            }
            EventState::Duplicate => {
                duplicate(self.recorded.get(&batch.ids[first]).map(|it| &**it))
            }
            EventState::Busy | EventState::CopyOf(_) | EventState::Refused => Ok(Done::Busy),
        }
    }
}
