//! What became of an event.

use std::{error::Error as StdError, fmt};

use semel_core::{Error, Failure, WorkError};

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<T> {
    /// The handler ran, and what it wrote is committed with the event.
    Now(T),
    /// An earlier copy was handled, with this value if it is kept. Acknowledge this one.
    Duplicate(Option<T>),
    /// An earlier copy is being handled. Do not acknowledge: deliver it again later.
    Busy,
}

/// Why an event is not done.
#[non_exhaustive]
pub enum InboxError {
    /// The handler failed for good. That is recorded and what it wrote is not; dead-letter, then acknowledge. A
    /// table of the variant `Minimal` cannot record it: there every failure is [`InboxError::Retry`].
    Failed {
        /// What it said.
        failure: Failure,
        /// True when an earlier copy failed, and this one did not run.
        replayed: bool,
    },
    /// The handler failed, nothing is written, and another try may succeed.
    Retry(WorkError),
    /// The event is done, but its recorded value is not of the type asked for.
    Unreadable(Error),
    /// The database failed, and nothing is written unless a commit was under way: deliver again.
    Store(Error),
}

impl fmt::Debug for InboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { failure, replayed } => f
                .debug_struct("Failed")
                .field("kind", &failure.kind)
                .field("replayed", replayed)
                .finish_non_exhaustive(),
            Self::Retry(error) => f.debug_tuple("Retry").field(error).finish(),
            Self::Unreadable(error) => f.debug_tuple("Unreadable").field(error).finish(),
            Self::Store(error) => f.debug_tuple("Store").field(error).finish(),
        }
    }
}

impl fmt::Display for InboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Messages may quote a payload.
            Self::Failed { failure, .. } => {
                write!(f, "the handler failed for good: {}", failure.kind)
            }
            Self::Retry(_) => f.write_str("the handler failed, try again"),
            Self::Unreadable(error) => write!(f, "the event is done, its value is lost: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl StdError for InboxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed { .. } => None,
            Self::Retry(error) => Some(error.error()),
            Self::Unreadable(error) | Self::Store(error) => Some(error),
        }
    }
}

impl From<Error> for InboxError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}
