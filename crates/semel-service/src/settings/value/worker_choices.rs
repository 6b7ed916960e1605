//! Settings of a worker that are one of a few words.

use clap::ValueEnum;
use semel_consumer::{
    Mode, OnDeadLetter, Order,
    pipeline::{OnMismatch, UnknownType},
};
use serde::Deserialize;

/// The order of events with the same ordering key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OrderChoice {
    /// later events of an ordering key wait for one that is tried again
    #[default]
    Strict,
    /// later events pass one that is tried again; one at a time runs
    Relaxed,
}

impl OrderChoice {
    pub(crate) const fn order(self) -> Order {
        match self {
            Self::Strict => Order::Strict,
            Self::Relaxed => Order::Relaxed,
        }
    }
}

/// What is recorded of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecordChoice {
    /// the event is claimed before the handler runs, and its outcome is recorded
    #[default]
    Record,
    /// only the id is kept, after a success; two copies at the same time may both run
    TrackIds,
}

impl RecordChoice {
    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Record => Mode::RecordOutcome,
            Self::TrackIds => Mode::TrackIds,
        }
    }
}

/// What happens to an event with the id of an earlier one and another payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MismatchChoice {
    /// it becomes a dead letter
    #[default]
    DeadLetter,
    /// it counts as a duplicate
    Skip,
    /// payloads are not compared
    Ignore,
}

impl MismatchChoice {
    pub(crate) const fn on_mismatch(self) -> OnMismatch {
        match self {
            Self::DeadLetter => OnMismatch::DeadLetter,
            Self::Skip => OnMismatch::Skip,
            Self::Ignore => OnMismatch::Ignore,
        }
    }
}

/// What happens to events of a type that is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnknownTypeChoice {
    /// they become dead letters
    #[default]
    DeadLetter,
    /// they are acknowledged and counted
    Skip,
    /// the worker ends with an error; the event stays in the broker
    Stop,
}

impl UnknownTypeChoice {
    pub(crate) const fn unknown_type(self) -> UnknownType {
        match self {
            Self::DeadLetter => UnknownType::DeadLetter,
            Self::Skip => UnknownType::Skip,
            Self::Stop => UnknownType::Stop,
        }
    }
}

/// What happens to the ordering key of an event that became a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeadLetterChoice {
    /// the next event of the ordering key runs
    #[default]
    Continue,
    /// later events of the ordering key become dead letters, too, until the first is redriven
    Park,
}

impl DeadLetterChoice {
    pub(crate) const fn on_dead_letter(self) -> OnDeadLetter {
        match self {
            Self::Continue => OnDeadLetter::Continue,
            Self::Park => OnDeadLetter::Park,
        }
    }
}
