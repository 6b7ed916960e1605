//! What can be said of a record without opening it.

use semel_core::{Labels, Outcome, Record};

use crate::{labels, outcome, seal};

/// How what a record holds is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seals {
    /// The names of the keys, as the record says itself.
    pub ids: Vec<String>,
    /// Something in it is not sealed.
    pub clear: bool,
    /// Something in it says that it is sealed, and is not what this layer writes.
    pub damaged: bool,
}

/// How this record, as its store has it, is sealed. Says nothing about whether it opens.
#[must_use]
pub fn seals_of(record: &Record) -> Seals {
    let mut seals = Seals::default();
    if let Some(labels) = &record.labels {
        seals.add(of_labels(labels));
    }
    if let Some(outcome) = &record.outcome {
        seals.add(of_outcome(outcome));
    }
    seals
}

/// `None`: not sealed. Otherwise the name of the key, if there is one to be read.
type Seal = Option<Option<String>>;

fn of_labels(labels: &Labels) -> Seal {
    let id = || seal::id_of(&labels::bytes(labels)?).map(str::to_owned);
    labels::are_sealed(labels).then(id)
}

fn of_outcome(outcome: &Outcome) -> Seal {
    let id = || seal::id_of(outcome::bytes(outcome)?).map(str::to_owned);
    outcome.is_sealed().then(id)
}

impl Seals {
    fn add(&mut self, seal: Seal) {
        match seal {
            None => self.clear = true,
            Some(None) => self.damaged = true,
            Some(Some(id)) if self.ids.contains(&id) => {}
            Some(Some(id)) => self.ids.push(id),
        }
    }
}
