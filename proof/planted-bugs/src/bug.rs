//! One thing that is wrong.

use std::fmt;

use semel_core::{
    Record, Timestamp,
    steps::{Change, Step},
};

use crate::{Answer, Call};

/// One thing that is wrong.
pub struct Flaw {
    /// What is wrong, in words.
    pub name: &'static str,
    /// Bends what a step sees, at this store time.
    pub before: fn(&mut Option<Record>, &mut Call, Timestamp),
    /// Bends what a step writes.
    pub after: fn(Seen<'_>, &mut Option<Record>),
    /// What is wrong beyond single steps.
    pub quirk: Quirk,
    /// Whether a sequence of single calls on one key can show it.
    pub shows_in_sequence: bool,
}

impl Flaw {
    /// Nothing is wrong.
    pub const NONE: Self = Self {
        name: "none",
        before: |_, _, _| {},
        after: |_, _| {},
        quirk: Quirk::None,
        shows_in_sequence: true,
    };

    /// Runs one real step with this flaw around it: what is stored afterwards, and what is answered.
    #[must_use]
    pub fn step(
        &self,
        found: Option<Record>,
        mut call: Call,
        now: Timestamp,
    ) -> (Option<Record>, Answer) {
        let mut shown = found.clone();
        (self.before)(&mut shown, &mut call, now);
        let Step { change, answer } = call.run(shown.as_ref(), now);
        let mut written = match change {
            Change::Keep => found.clone(),
            Change::Put(record) => Some(record),
            Change::Delete => None,
        };
        (self.after)(Seen { record: found.as_ref(), call: &call, now }, &mut written);
        (written, answer)
    }
}

impl fmt::Debug for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a step saw.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The record before the step.
    pub record: Option<&'a Record>,
    /// What was asked, as bent by [`Flaw::before`].
    pub call: &'a Call,
    /// Store time.
    pub now: Timestamp,
}

/// Flaws beyond single steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Quirk {
    None,
    PurgeIgnoresItsLimit,
    GetShowsExpired,
    ListShowsExpired,
    ListRepeatsTheLast,
    ListIgnoresOrder,
    ListMatchesPrefixes,
    BatchAnswersInKeyOrder,
    BatchMissesTwins,
    StepsAreNotAtomic,
    TimeStandsStill,
}
