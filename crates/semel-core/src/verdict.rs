//! The verdict: what the work reports about its attempt.

use std::{
    error::Error as StdError,
    panic::{self, AssertUnwindSafe},
};

use crate::{Body, Classifier, Ending, ErrorClass, Outcome, WorkError};

/// How an attempt ended, as the work reports it.
#[derive(Debug)]
pub enum Verdict {
    /// The work is done, successfully or not. The outcome is recorded.
    Final(Outcome),
    /// The work had no effect. The key is released, and another payload may use it.
    NoEffect(WorkError),
    /// The work may have had an effect, and may be repeated.
    Retry(WorkError),
    /// It is not known whether the work took effect.
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

    /// The verdict for an error: as the error itself says, or else as the classifier decides.
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
