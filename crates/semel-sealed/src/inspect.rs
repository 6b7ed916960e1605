//! Reads how a record is sealed, without opening it.

use semel_core::{Labels, Outcome, Record};

use crate::{labels, outcome, seal};

/// How the labels and the outcome of a record are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seals {
    /// Its labels.
    pub labels: Seal,
    /// Its outcome.
    pub outcome: Seal,
}

/// How one part of a record is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The record does not have this part.
    Absent,
    /// The part is not sealed.
    Clear,
    /// The part says that it is sealed with the key of this name.
    With(String),
    /// The part is marked as sealed, but this layer did not write it.
    Damaged,
}

/// How this record is sealed in its store. It does not check whether the record opens.
#[must_use]
pub fn seals_of(record: &Record) -> Seals {
    Seals {
        labels: record.labels.as_ref().map_or(Seal::Absent, of_labels),
        outcome: record.outcome.as_ref().map_or(Seal::Absent, |outcome| of_outcome(outcome)),
    }
}

impl Seals {
    /// The names of the keys, each once.
    #[must_use]
    pub fn ids(&self) -> Vec<&str> {
        let mut ids: Vec<&str> =
            [&self.labels, &self.outcome].into_iter().filter_map(Seal::id).collect();
        ids.dedup();
        ids
    }

    /// True if the labels or the outcome are sealed like this.
    #[must_use]
    pub fn has(&self, seal: &Seal) -> bool {
        self.labels == *seal || self.outcome == *seal
    }
}

impl Seal {
    /// The name of the key.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::With(id) => Some(id),
            Self::Absent | Self::Clear | Self::Damaged => None,
        }
    }

    fn of(bytes: Option<&[u8]>) -> Self {
        match bytes.and_then(seal::id_of) {
            Some(id) => Self::With(id.to_owned()),
            None => Self::Damaged,
        }
    }
}

fn of_labels(labels: &Labels) -> Seal {
    match labels::are_sealed(labels) {
        true => Seal::of(labels::bytes(labels).as_deref()),
        false => Seal::Clear,
    }
}

fn of_outcome(outcome: &Outcome) -> Seal {
    match outcome.is_sealed() {
        true => Seal::of(outcome::bytes(outcome).map(|bytes| &bytes[..])),
        false => Seal::Clear,
    }
}
