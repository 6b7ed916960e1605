//! What a caller is told.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;

use crate::{Ending, Error, ErrorClass, Failure, Outcome};

/// The value of an operation that took effect once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// What the work produced, now or the first time.
    pub value: T,
    /// True when the work did not run for this caller.
    pub replayed: bool,
    /// False when the work is done but its outcome could not be recorded: a retry may run it again.
    pub stored: bool,
    /// Which attempt produced it; 0 when the work ran without protection.
    pub attempt: u32,
}

/// [`Answer`] with the outcome as it is recorded: a success or a final failure.
pub type RawAnswer = Answer<Arc<Outcome>>;

impl RawAnswer {
    pub(crate) fn typed<T: DeserializeOwned>(self) -> Result<Answer<T>, RunError> {
        let Self { value: outcome, replayed, stored, attempt } = self;
        if let Some(failure) = outcome.as_failure() {
            let failure = failure.clone();
            return Err(RunError::Failed(Failed { failure, replayed, stored, attempt }));
        }
        let value = outcome.decode().map_err(RunError::Store)?;
        Ok(Answer { value, replayed, stored, attempt })
    }
}

/// Why there is no value. Cheap to clone: everybody who waited for one run gets the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The work ended in a final failure. Asking again gives the same answer.
    Failed(Failed),
    /// The attempt failed and may be tried again.
    Retry(Retry),
    /// Somebody else owns the key, or too many wait for it.
    Busy {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The key was used for something else.
    Mismatch,
    /// The owner was lost or could not say what happened; an operator decides.
    Unknown,
    /// Out of attempts.
    Dead,
    /// The outcome was erased by an operator.
    Gone,
    /// The store failed before the work began, or what it holds cannot be read. The work did not run.
    Store(Error),
}

/// A final failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What the work said.
    pub failure: Failure,
    /// True when the work did not run for this caller.
    pub replayed: bool,
    /// False when it is not recorded: a retry may run the work again.
    pub stored: bool,
    /// Which attempt produced it.
    pub attempt: u32,
}

/// An attempt that may be tried again.
#[derive(Clone)]
pub struct Retry {
    /// What kind of error it was.
    pub class: ErrorClass,
    /// What is known about the effect.
    pub ending: Ending,
    /// Which attempt it was.
    pub attempt: u32,
    /// When trying again makes sense.
    pub retry_after: Duration,
    pub(crate) error: Arc<dyn StdError + Send + Sync>,
}

impl Retry {
    /// The error of the work.
    #[must_use]
    pub fn error(&self) -> &(dyn StdError + 'static) {
        &*self.error
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The error itself may quote a payload.
        f.debug_struct("Retry")
            .field("class", &self.class)
            .field("ending", &self.ending)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failed) => write!(f, "the work failed for good: {}", failed.failure),
            Self::Retry(retry) => {
                write!(f, "attempt {} failed ({}), try again", retry.attempt, retry.class)
            }
            Self::Busy { retry_after } => {
                write!(f, "the key is in progress, try again in {retry_after:?}")
            }
            Self::Mismatch => f.write_str("the key was used for something else"),
            Self::Unknown => f.write_str(
                "nobody knows whether the work took effect, an operator must resolve it",
            ),
            Self::Dead => f.write_str("the key is out of attempts"),
            Self::Gone => f.write_str("the outcome was erased"),
            Self::Store(error) => write!(f, "the store cannot answer: {error}"),
        }
    }
}

impl StdError for RunError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Retry(retry) => Some(retry.error()),
            Self::Store(error) => Some(error),
            Self::Failed(_)
            | Self::Busy { .. }
            | Self::Mismatch
            | Self::Unknown
            | Self::Dead
            | Self::Gone => None,
        }
    }
}
