//! The result of processing an event.

use std::{error::Error as StdError, fmt};

use semel_core::{Error, Failure, WorkError};

/// The result of processing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<T> {
    /// The handler ran, and what it wrote is committed with the event.
    Now(T),
    /// An earlier copy was processed, with this value if it is kept. Acknowledge this copy.
    Duplicate(Option<T>),
    /// Another copy is being processed. Do not acknowledge: deliver this one again later.
    Busy,
}

/// Why an event was not processed.
#[non_exhaustive]
pub enum InboxError {
    /// The handler failed for good. The failure is recorded, and what the handler wrote is rolled back. Dead-letter the
    /// event, then acknowledge it. A table of the variant `Minimal` cannot record failures: there every failure is
    /// [`InboxError::Retry`].
    Failed {
        /// The handler's failure.
        failure: Failure,
        /// True when an earlier copy failed, and this one did not run.
        replayed: bool,
    },
    /// The handler failed, nothing is written, and another attempt may succeed.
    Retry(WorkError),
    /// The event was processed, but its recorded value does not have the requested type.
    Unreadable(Error),
    /// The database failed. Nothing is written, unless a commit was under way: deliver the event again.
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
            // Without the message, which may quote a payload.
            Self::Failed { failure, .. } => {
                write!(f, "the handler failed for good: {}", failure.kind)
            }
            Self::Retry(_) => f.write_str("the handler failed; try again"),
            Self::Unreadable(error) => {
                write!(f, "the event was processed, its value cannot be read: {error}")
            }
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
