//! What a storm found, to be read at three in the morning.

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use super::Plan;
use crate::check::{Findings, Invariant};

/// Violations shown in full; the rest are counted.
const SHOWN: usize = 5;

/// What a storm found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was done.
    pub plan: Plan,
    /// What the checker says.
    pub findings: Findings,
    /// History, ledger, store and complaints of a run that failed.
    pub folder: Option<PathBuf>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// True when nothing was found.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.violations.is_empty()
    }

    /// The invariants that were broken.
    #[must_use]
    pub fn broken(&self) -> BTreeSet<Invariant> {
        self.findings.violations.iter().map(|violation| violation.invariant).collect()
    }

    /// Removes the folder of a run that was meant to fail.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub fn discard(self) -> std::io::Result<()> {
        self.folder.map_or(Ok(()), std::fs::remove_dir_all)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, found) = (&self.plan, &self.findings.violations);
        let end = if self.passed() { "passed" } else { "FAILED" };
        let seconds = self.elapsed.as_secs_f32();
        writeln!(f, "storm over {} {end} in {seconds:.1} s, seed {}", plan.store, plan.seed)?;
        write!(f, "  {}", self.findings.counts)?;
        for invariant in self.broken() {
            let count = found.iter().filter(|it| it.invariant == invariant).count();
            write!(f, "\n  {count:>5} × {invariant}")?;
        }
        // The first of each kind says more than five of one kind.
        let mut shown = BTreeSet::new();
        for violation in found.iter().filter(|it| shown.insert(it.invariant)).take(SHOWN) {
            write!(f, "\n\n{violation}")?;
        }
        if let Some(folder) = &self.folder {
            write!(f, "\n\nhistory.jsonl, ledger.jsonl, stderr.log: {}", folder.display())?;
        }
        Ok(())
    }
}
