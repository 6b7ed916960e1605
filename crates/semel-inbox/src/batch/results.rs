//! How the events of a batch ended, and what each is answered.

use std::{collections::HashMap, sync::Arc};

use semel_core::{Error, Outcome, Verdict, WorkError};
use serde::{Serialize, de::DeserializeOwned};

use super::{Batch, Standing};
use crate::{
    Done, InboxError,
    process::{duplicate, failure},
};

/// How the events of a batch ended that ran.
pub(super) struct Ended<T> {
    pub(super) values: HashMap<usize, T>,
    /// Successes and final failures.
    pub(super) outcomes: HashMap<usize, Outcome>,
    /// To be tried again.
    pub(super) open: HashMap<usize, WorkError>,
    /// What the duplicates are answered with.
    pub(super) recorded: HashMap<String, Arc<Outcome>>,
}

impl<T> Default for Ended<T> {
    fn default() -> Self {
        let (values, outcomes) = (HashMap::new(), HashMap::new());
        Self { values, outcomes, open: HashMap::new(), recorded: HashMap::new() }
    }
}

impl<T: Serialize + DeserializeOwned> Ended<T> {
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

    pub(super) fn answers(mut self, batch: &Batch<'_>) -> Vec<Result<Done<T>, InboxError>> {
        // Twins first: they look at what the others take away.
        let twins: HashMap<usize, _> = batch
            .standing
            .iter()
            .enumerate()
            .filter_map(|(at, standing)| {
                let Standing::Twin(first) = *standing else { return None };
                Some((at, self.of_twin(batch, first)))
            })
            .collect();
        let mut twins = twins;
        (0..batch.standing.len())
            .map(|at| twins.remove(&at).unwrap_or_else(|| self.answer(batch, at)))
            .collect()
    }

    fn answer(&mut self, batch: &Batch<'_>, at: usize) -> Result<Done<T>, InboxError> {
        match batch.standing[at] {
            Standing::Busy | Standing::Twin(_) => Ok(Done::Busy),
            Standing::Refused => Err(batch.refusal(at)),
            Standing::Duplicate => duplicate(self.recorded.get(&batch.ids[at]).map(|it| &**it)),
            Standing::New => match (self.values.remove(&at), self.open.remove(&at)) {
                (Some(value), _) => Ok(Done::Now(value)),
                (None, Some(error)) => Err(InboxError::Retry(error)),
                (None, None) => Err(self.outcomes.get(&at).map_or_else(
                    || InboxError::Store(Error::invalid("inbox: an event without an end")),
                    |outcome| failure(outcome, false),
                )),
            },
        }
    }

    /// A copy of an event in the same batch: what the first ended with, or busy while that is open.
    fn of_twin(&self, batch: &Batch<'_>, first: usize) -> Result<Done<T>, InboxError> {
        match batch.standing[first] {
            Standing::New => {
                self.outcomes.get(&first).map_or(Ok(Done::Busy), |it| duplicate(Some(it)))
            }
            Standing::Duplicate => duplicate(self.recorded.get(&batch.ids[first]).map(|it| &**it)),
            Standing::Busy | Standing::Twin(_) | Standing::Refused => Ok(Done::Busy),
        }
    }
}
