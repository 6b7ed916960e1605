//! The report of a chaos run.

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use super::ChaosPlan;
use crate::check::{Findings, Invariant};

/// How many violations are shown in full. The rest are counted.
const SHOWN: usize = 5;

/// The report of a chaos run.
#[derive(Clone, Debug)]
pub struct ChaosReport {
    /// The settings.
    pub plan: ChaosPlan,
    /// The findings of the checker.
    pub findings: Findings,
    /// The folder with history, ledger, store and stderr of a failed run.
    pub folder: Option<PathBuf>,
    /// The time that the run took.
    pub elapsed: Duration,
}

impl ChaosReport {
    /// True when the checker found no violation.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.violations.is_empty()
    }

    /// The invariants that were broken.
    #[must_use]
    pub fn broken(&self) -> BTreeSet<Invariant> {
        self.findings.violations.iter().map(|violation| violation.invariant).collect()
    }

    /// Removes the folder of a run that was expected to fail.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub fn discard(self) -> std::io::Result<()> {
        self.folder.map_or(Ok(()), std::fs::remove_dir_all)
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, found) = (&self.plan, &self.findings.violations);
        let result = if self.passed() { "passed" } else { "FAILED" };
        let seconds = self.elapsed.as_secs_f32();
        writeln!(
            f,
            "chaos run over {} {result} in {seconds:.1} s, seed {}",
            plan.store, plan.seed
        )?;
        write!(f, "  {}", self.findings.counts)?;
        for invariant in self.broken() {
            let count = found.iter().filter(|it| it.invariant == invariant).count();
            write!(f, "\n  {count:>5} × {invariant}")?;
        }
        // One violation of each invariant is more useful than five of the same.
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
