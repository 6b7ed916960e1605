//! The verdict: what the work says about its own attempt.

use std::{
    error::Error as StdError,
    panic::{self, AssertUnwindSafe},
};

use crate::{Body, Classifier, Ending, ErrorClass, Outcome, WorkError};

/// How an attempt ended, in the work's own words.
#[derive(Debug)]
pub enum Verdict {
    /// Done, successfully or not. Recorded.
    Final(Outcome),
    /// Nothing happened. The key is released and another payload may use it.
    NoEffect(WorkError),
    /// Something may have happened; try again.
    Retry(WorkError),
    /// Nobody can say what happened.
    Indeterminate(WorkError),
}

impl Verdict {
    /// A success whose value is recorded as JSON.
    pub fn success<T: serde::Serialize>(value: &T) -> Self {
        // The effect has happened: a value that cannot be written must not make it happen again.
        let written = panic::catch_unwind(AssertUnwindSafe(|| Outcome::json(value)));
        let unwritable = || Outcome::success("").with_body(Body::Omitted { length: 0 });
        Self::Final(written.ok().and_then(Result::ok).unwrap_or_else(unwritable))
    }

    /// What an error means, by its own word or else by the classifier's.
    pub fn of_error(mut error: WorkError, classifier: &dyn Classifier) -> Self {
        let class = *error.class.get_or_insert_with(|| {
            let cause: &(dyn StdError + 'static) = &*error.error;
            classifier.classify(cause)
        });
        match error.ending.unwrap_or_else(|| class.ending()) {
            Ending::Final => {
                let kind = error.kind.unwrap_or_else(|| class.as_str().to_owned());
                Self::Final(Outcome::failure(kind, error.error.to_string()))
            }
            Ending::NoEffect => Self::NoEffect(error),
            Ending::Retry => Self::Retry(error),
            Ending::Indeterminate => Self::Indeterminate(error),
        }
    }
}

/// The class of a recorded failure: its kind where that is one of ours, since metrics cannot take
/// free text.
pub(crate) fn class_of(kind: &str) -> ErrorClass {
    use ErrorClass as C;
    [C::Validation, C::Unauthorised, C::NotFound]
        .into_iter()
        .find(|class| class.as_str() == kind)
        .unwrap_or(C::BusinessRule)
}
