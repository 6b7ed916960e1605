//! A planted bug, and the step that it changes.

use std::fmt;

use semel_core::{
    Record, Timestamp,
    steps::{Change, Step},
};

use crate::{StepReply, StepRequest};

/// One deliberate defect of a store.
pub struct PlantedBug {
    /// The defect in words.
    pub name: &'static str,
    /// Changes the record and the request that a step sees, at this store time.
    pub before: fn(&mut Option<Record>, &mut StepRequest, Timestamp),
    /// Changes the record that a step writes.
    pub after: fn(StepInput<'_>, &mut Option<Record>),
    /// A defect beyond single steps.
    pub store_bug: StoreBug,
    /// Whether a sequence of single calls on one key can show it.
    pub shows_in_sequence: bool,
}

impl PlantedBug {
    /// No defect.
    pub const NONE: Self = Self {
        name: "none",
        before: |_, _, _| {},
        after: |_, _| {},
        store_bug: StoreBug::None,
        shows_in_sequence: true,
    };

    /// Runs one real step, changed by this bug. Returns the record afterwards and the reply.
    #[must_use]
    pub fn step(
        &self,
        found: Option<Record>,
        mut call: StepRequest,
        now: Timestamp,
    ) -> (Option<Record>, StepReply) {
        let mut shown = found.clone();
        (self.before)(&mut shown, &mut call, now);
        let Step { change, answer } = call.run(shown.as_ref(), now);
        let mut written = match change {
            Change::Keep => found.clone(),
            Change::Put(record) => Some(record),
            Change::Delete => None,
        };
        (self.after)(StepInput { record: found.as_ref(), call: &call, now }, &mut written);
        (written, answer)
    }
}

impl fmt::Debug for PlantedBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The input of a step.
#[derive(Debug)]
pub struct StepInput<'a> {
    /// The record before the step.
    pub record: Option<&'a Record>,
    /// The request, as changed by [`PlantedBug::before`].
    pub call: &'a StepRequest,
    /// The time of the store.
    pub now: Timestamp,
}

/// Defects beyond single steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum StoreBug {
    None,
    PurgeIgnoresItsLimit,
    GetShowsExpired,
    ListShowsExpired,
    ListRepeatsTheLast,
    ListIgnoresOrder,
    ListMatchesPrefixes,
    BatchAnswersInKeyOrder,
    BatchMissesSameKey,
    StepsAreNotAtomic,
    TimeStandsStill,
}
