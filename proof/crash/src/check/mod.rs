//! The checker: what must be true of a history, a ledger and a final dump.
//!
//! Times are compared only where they prove something: `a` came before `b` when `a` had ended before
//! `b` was called. A call without an end may have happened, or not.

mod evidence_files;
mod floor;
mod invariant;
mod key_history;
mod linearizability;
mod outcomes;
mod owners;
mod payloads;
mod settled;

pub use floor::{Counts, Floor};
pub use invariant::{Invariant, Violation};

use std::collections::HashMap;

use crate::{event::Event, ledger::Entry, load::Dumped};
use key_history::stories;

/// Clocks of stores count in milliseconds, and wall clocks are slewed: this much may be missing.
const TOLERANCE: u64 = 20_000;

/// Violations of one invariant that come with the lines of their key: a store that forgets everything
/// would fill the memory with them.
const TOLD: usize = 3;

/// Everything there is to judge by.
#[derive(Debug)]
pub struct Evidence {
    /// The history.
    pub events: Vec<Event>,
    /// The ledger.
    pub ledger: Vec<Entry>,
    /// The store at the end.
    pub dump: Vec<Dumped>,
    /// When the dump was complete, by [`mono`](crate::mono).
    pub dumped_at: u64,
    /// What applies to this run.
    pub rules: Rules,
}

/// What applies to a run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Opening the store ends the leases of earlier processes, and no call outlives its process.
    pub frees_at_open: bool,
    /// A store that replays stands in front of the one that decides.
    pub has_front: bool,
    /// Each call judges by its own estimate of the time whether a record has expired: at that moment one may
    /// find it gone that another has just extended.
    pub expires_by_estimate: bool,
    /// What must have happened.
    pub floor: Floor,
}

/// What the checker found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What happened, in numbers.
    pub counts: Counts,
    /// What must not have happened, but did.
    pub violations: Vec<Violation>,
}

/// Checks every invariant that applies to an engine over a store: all but I2 (transactions) and I12
/// (brokers), which need a database's or a broker's own evidence.
#[must_use]
pub fn check(evidence: &Evidence) -> Findings {
    let mut violations = owners::nonces(evidence);
    let mut shown: HashMap<Invariant, usize> = HashMap::new();
    for story in stories(evidence) {
        let found = [
            owners::check(&story),
            outcomes::check(&story),
            payloads::check(&story),
            settled::check(&story),
            linearizability::check(&story),
        ];
        violations.extend(found.into_iter().flatten().map(|violation| {
            let shown = shown.entry(violation.invariant).or_default();
            *shown += 1;
            if *shown <= TOLD { story.told(violation) } else { violation }
        }));
    }
    let counts = Counts::of(evidence);
    violations.extend(evidence.rules.floor.check(&counts));
    violations.sort_by_key(|violation| violation.invariant);
    Findings { counts, violations }
}
