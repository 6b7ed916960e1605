//! What a run of the gate prints about itself: each stage as it starts and ends, then a table.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The stages that ended. Stages may run side by side.
#[derive(Debug)]
pub(crate) struct GateReport {
    started: Instant,
    rows: Mutex<Vec<StageRow>>,
}

#[derive(Debug)]
struct StageRow {
    name: String,
    took: Duration,
    result: StageResult,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum StageResult {
    Passed,
    Failed,
}

impl Default for GateReport {
    fn default() -> Self {
        Self { started: Instant::now(), rows: Mutex::default() }
    }
}

impl GateReport {
    /// Runs one stage under its heading, and keeps how long it took.
    pub(crate) fn time(&self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("== {name}");
        let started = Instant::now();
        let outcome = run();
        let took = started.elapsed();
        let result = if outcome.is_ok() { StageResult::Passed } else { StageResult::Failed };
        println!("== {name}: {} after {}", result.word(), seconds(took));
        self.rows().push(StageRow { name: name.to_owned(), took, result });
        outcome
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.table());
    }

    fn table(&self) -> String {
        let rows = self.rows();
        let mut lines: Vec<_> = rows.iter().map(StageRow::line).collect();
        let failed = rows.iter().filter(|row| row.result == StageResult::Failed).count();
        // Less than the sum of the rows where stages ran side by side.
        lines.push(format!("{:<20} {:>9}", "total", seconds(self.started.elapsed())));
        lines.push(format!("stages: {} passed, {failed} failed", rows.len() - failed));
        lines.join("\n")
    }

    fn rows(&self) -> MutexGuard<'_, Vec<StageRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StageRow {
    fn line(&self) -> String {
        format!("{:<20} {:>9}  {}", self.name, seconds(self.took), self.result.word())
    }
}

impl StageResult {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_what_passed_and_what_failed() {
        let report = GateReport::default();
        report.time("good", || Ok(())).unwrap();
        report.time("bad", || anyhow::bail!("no")).unwrap_err();
        let table = report.table();
        assert!(table.contains("bad") && table.contains("total"), "{table}");
        assert!(table.ends_with("stages: 1 passed, 1 failed"), "{table}");
    }
}
