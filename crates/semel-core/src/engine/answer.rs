//! What a caller gets: an answer with the value, or an error that says why there is none.

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
        match outcome.decode() {
            Ok(value) => Ok(Answer { value, replayed, stored, attempt }),
            Err(error) => {
                Err(RunError::Unreadable(Unreadable { error, replayed, stored, attempt }))
            }
        }
    }
}

/// Why there is no value. Cheap to clone, since all callers that waited for one run get the same error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The work ended in a final failure. Once it is recorded, a retry gets the same failure.
    Failed(Failed),
    /// The attempt failed and may be repeated.
    Retry(Retry),
    /// Another caller owns the key, or too many callers wait for it.
    Busy {
        /// When a retry makes sense.
        retry_after: Duration,
    },
    /// The key was used with another fingerprint.
    Mismatch,
    /// The owner was lost or could not say whether the work took effect; an operator decides.
    Unknown,
    /// The key is out of attempts.
    Dead,
    /// The outcome was erased by an operator.
    Gone,
    /// The work is done, but its value cannot be read.
    Unreadable(Unreadable),
    /// The runtime was shut down while the work ran, and the work may have taken effect. A retry is safe: the key is
    /// taken over or held as its policy says.
    Interrupted,
    /// The store failed before the work began. The work did not run.
    Store(Error),
}

/// Work that is done, but whose value has another type than the caller expects, was too large to keep, or has no JSON
/// form.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// What is wrong with the value.
    pub error: Error,
    /// True when the work did not run for this caller.
    pub replayed: bool,
    /// False when nothing is recorded: a retry may run the work again.
    pub stored: bool,
    /// Which attempt produced it.
    pub attempt: u32,
}

/// A final failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The failure that the work returned.
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
    /// When a retry makes sense.
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
        // The error's text may quote a payload.
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
            // Its message may quote a payload, so it is not shown here. Callers find it in the failure.
            Self::Failed(failed) => write!(f, "the work failed for good: {}", failed.failure.kind),
            Self::Retry(retry) => {
                write!(f, "attempt {} failed ({}), try again", retry.attempt, retry.class)
            }
            Self::Busy { retry_after } => {
                write!(f, "the key is in progress, try again in {retry_after:?}")
            }
            Self::Mismatch => f.write_str("the key was used for something else"),
            Self::Unknown => f.write_str(
                "it is not known whether the work took effect, an operator must resolve it",
            ),
            Self::Dead => f.write_str("the key is out of attempts"),
            Self::Gone => f.write_str("the outcome was erased"),
            Self::Unreadable(done) => write!(f, "the work is done, {}", done.error),
            Self::Interrupted => f.write_str("the runtime was shut down under the work"),
            Self::Store(error) => write!(f, "the store cannot answer: {error}"),
        }
    }
}

impl StdError for RunError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Retry(retry) => Some(retry.error()),
            Self::Store(error) => Some(error),
            Self::Unreadable(done) => Some(&done.error),
            Self::Interrupted
            | Self::Failed(_)
            | Self::Busy { .. }
            | Self::Mismatch
            | Self::Unknown
            | Self::Dead
            | Self::Gone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_error_says_what_happened_and_quotes_nothing() {
        let failure = Failure { kind: "declined".into(), message: "canary".into() };
        let failed = Failed { failure, replayed: false, stored: true, attempt: 1 };
        let error: Arc<dyn StdError + Send + Sync> =
            Box::<dyn StdError + Send + Sync>::from("canary").into();
        let (class, ending, retry_after) = (ErrorClass::Timeout, Ending::Retry, Duration::ZERO);
        let retry = Retry { class, ending, attempt: 3, retry_after, error };
        let store = Error::new(ErrorKind::Unavailable, "no answer");
        let unreadable =
            Unreadable { error: store.clone(), replayed: true, stored: true, attempt: 1 };
        for (error, words) in [
            (RunError::Failed(failed), "failed for good: declined"),
            (RunError::Retry(retry), "attempt 3 failed (timeout)"),
            (RunError::Busy { retry_after: Duration::from_secs(2) }, "try again in 2s"),
            (RunError::Mismatch, "something else"),
            (RunError::Unknown, "an operator must resolve it"),
            (RunError::Dead, "out of attempts"),
            (RunError::Gone, "erased"),
            (RunError::Unreadable(unreadable), "the work is done"),
            (RunError::Interrupted, "shut down under the work"),
            (RunError::Store(store), "no answer"),
        ] {
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(words) && !shown.contains("canary"), "{shown}");
            let has_source =
                matches!(error, RunError::Retry(_) | RunError::Store(_) | RunError::Unreadable(_));
            assert_eq!(error.source().is_some(), has_source, "{error:?}");
        }
    }
}
