//! What can be said of a record without opening it.

use semel_core::{Labels, Outcome, Record};

use crate::{labels, outcome, seal};

/// How what a record holds is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seals {
    /// Its labels.
    pub labels: Seal,
    /// Its outcome.
    pub outcome: Seal,
}

/// How one thing is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seal {
    /// There is nothing.
    Absent,
    /// It is not sealed.
    Clear,
    /// It is sealed with the key of this name, as it says itself.
    With(String),
    /// It should be sealed, and is not what this layer writes.
    Damaged,
}

/// How this record, as its store has it, is sealed. Says nothing about whether it opens.
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

    /// True when either is like this.
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
