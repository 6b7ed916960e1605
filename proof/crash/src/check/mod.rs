//! The checker: compares history, ledger and final dump with the invariants.
//!
//! Times are compared only where they prove something: `a` came before `b` when `a` had ended before `b` was called. A
//! call without an end may have taken effect or not.

mod evidence_files;
mod floor;
mod invariant;
mod key_history;
mod linearizability;
mod outcomes;
mod owners;
mod payloads;
mod settled;

pub use floor::{ChaosCounts, Floor};
pub use invariant::{Invariant, Violation};

use std::collections::HashMap;

use crate::{event::Event, ledger::LedgerEntry, load::DumpedRecord};
use key_history::key_histories;

/// Tolerance in microseconds: clocks of stores count in milliseconds, and wall clocks are slewed.
const TOLERANCE: u64 = 20_000;

/// How many violations of one invariant get the lines of their key. A store that loses everything would fill the
/// memory with them.
const SHOWN_IN_FULL: usize = 3;

/// Everything that the checker reads.
#[derive(Debug)]
pub struct Evidence {
    /// The history.
    pub events: Vec<Event>,
    /// The ledger.
    pub ledger: Vec<LedgerEntry>,
    /// The records at the end.
    pub dump: Vec<DumpedRecord>,
    /// When the dump was complete, by [`mono`](crate::mono).
    pub dumped_at: u64,
    /// The rules of this run.
    pub rules: CheckRules,
}

/// The rules of a run, which depend on its store.
#[derive(Clone, Copy, Debug)]
pub struct CheckRules {
    /// Opening the store ends the leases of earlier processes, and no call outlives its process.
    pub frees_at_open: bool,
    /// The store is an arbiter: a front replays copies of outcomes.
    pub has_front: bool,
    /// Each call decides by its own estimate of the time whether a record has expired. At that moment one call may
    /// find it expired although another has just extended it.
    pub expires_by_estimate: bool,
    /// The least that must have happened.
    pub floor: Floor,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Findings {
    /// How often each thing happened.
    pub counts: ChaosCounts,
    /// The violated invariants.
    pub violations: Vec<Violation>,
}

/// Checks every invariant that applies to an engine over a store: all but I2 (transactions) and I12
/// (brokers), which need evidence from a database or a broker.
#[must_use]
pub fn check(evidence: &Evidence) -> Findings {
    let mut violations = owners::nonces(evidence);
    let mut shown: HashMap<Invariant, usize> = HashMap::new();
    for history in key_histories(evidence) {
        let found = [
            owners::check(&history),
            outcomes::check(&history),
            payloads::check(&history),
            settled::check(&history),
            linearizability::check(&history),
        ];
        violations.extend(found.into_iter().flatten().map(|violation| {
            let shown = shown.entry(violation.invariant).or_default();
            *shown += 1;
            if *shown <= SHOWN_IN_FULL { history.with_lines(violation) } else { violation }
        }));
    }
    let counts = ChaosCounts::of(evidence);
    violations.extend(evidence.rules.floor.check(&counts));
    violations.sort_by_key(|violation| violation.invariant);
    Findings { counts, violations }
}
