//! Why a redrive did not happen, or did not finish. Each text names the fix.

use std::{error::Error as StdError, fmt, time::Duration};

use semel_core::Error;

/// Why a redrive did not happen, or did not finish. A redrive can always be repeated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RedriveError {
    /// No reason was given.
    NoReason,
    /// There is no letter with this id.
    NotFound {
        /// The id.
        id: String,
    },
    /// The state of the event does not allow it. Nothing was published.
    Refused(RedriveRefusal),
    /// The dead letters or the record of the event cannot be read or changed. Nothing was published.
    Unavailable(Error),
    /// The broker did not confirm the message, which may have arrived. The letter is kept.
    NotConfirmed(Error),
    /// The message was published, and the letter may still be there.
    NotRemoved(Error),
}

/// Why an event may not be published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedriveRefusal {
    /// Its success is recorded.
    Succeeded,
    /// A copy of it is being processed.
    Running {
        /// What is left of the lease of its owner.
        remaining: Duration,
    },
    /// It is not known whether it took effect.
    Unknown,
    /// An operator has erased its record.
    Erased,
    /// Its letter or its record has changed meanwhile.
    Changed,
    /// Its ordering key is being parked.
    BeingParked,
    /// Its id is that of another event, which is recorded.
    OtherEvent,
    /// The store has no record of it, although it was attempted.
    NotRecorded,
}

impl fmt::Display for RedriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReason => f.write_str("a redrive needs a reason, which is logged; give one"),
            Self::NotFound { id } => {
                write!(
                    f,
                    "there is no dead letter {id:?}; it may be redriven or removed already; list the letters"
                )
            }
            Self::Refused(refusal) => write!(f, "{refusal}; nothing was published"),
            Self::Unavailable(error) => {
                write!(f, "{error}; nothing was published; redrive again later")
            }
            Self::NotConfirmed(error) => write!(
                f,
                "the broker did not confirm the message: {error}; it may have arrived, and the letter is kept; redrive \
                 again: a second copy is a duplicate"
            ),
            Self::NotRemoved(error) => write!(
                f,
                "the message was published, but its letter may still be there: {error}; redrive again: a second \
                 copy is a duplicate"
            ),
        }
    }
}

impl StdError for RedriveError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unavailable(error) | Self::NotConfirmed(error) | Self::NotRemoved(error) => {
                Some(error)
            }
            Self::NoReason | Self::NotFound { .. } | Self::Refused(_) => None,
        }
    }
}

impl fmt::Display for RedriveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => {
                f.write_str("the success of this event is recorded: running it again could repeat its effect; if its \
                             letter is left over, remove the letter")
            }
            Self::Running { remaining } => {
                write!(f, "a copy of this event is being processed; try again in {remaining:?}")
            }
            Self::Unknown => f.write_str(
                "it is not known whether this event took effect; find out, decide with `semel keys resolve`, and \
                 redrive it if it is to run again",
            ),
            Self::Erased => f.write_str(
                "an operator has erased the record of this event, so that no copy of it runs; remove the letter",
            ),
            Self::Changed => {
                f.write_str("the letter of this event, or its record, has changed meanwhile; look at it and try again")
            }
            Self::NotRecorded => f.write_str(
                "this store has no record of the event; name the store of its consumer, or, if the record has expired, or \
                 the handler writes in a transaction, redrive it without a record",
            ),
            Self::OtherEvent => f.write_str(
                "another event with its id is recorded, and a copy of this one would be refused again; publish it under \
                 an id of its own, and remove the letter",
            ),
            Self::BeingParked => {
                f.write_str("the consumer is parking the ordering key of this event; redrive it again in a moment")
            }
        }
    }
}

impl StdError for RedriveRefusal {}

impl From<RedriveRefusal> for RedriveError {
    fn from(refusal: RedriveRefusal) -> Self {
        Self::Refused(refusal)
    }
}
