//! What a run of the gate prints about itself.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Debug, Default)]
pub(crate) struct GateReport {
    rows: Vec<StageRow>,
}

#[derive(Debug)]
struct StageRow {
    name: &'static str,
    took: Duration,
    verdict: StageResult,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum StageResult {
    Passed,
    Failed,
}

impl GateReport {
    /// Runs one stage under its heading and remembers how long it took.
    pub(crate) fn time(
        &mut self,
        name: &'static str,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        println!("== {name}");
        let started = Instant::now();
        let result = run();
        let took = started.elapsed();
        let verdict = if result.is_ok() { StageResult::Passed } else { StageResult::Failed };
        println!("== {name}: {} after {}", verdict.word(), seconds(took));
        self.rows.push(StageRow { name, took, verdict });
        result
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.table());
    }

    fn table(&self) -> String {
        let mut lines: Vec<_> = self.rows.iter().map(StageRow::line).collect();
        let total = self.rows.iter().map(|row| row.took).sum();
        let failed = self.rows.iter().filter(|row| row.verdict == StageResult::Failed).count();
        lines.push(format!("{:<12} {:>9}", "total", seconds(total)));
        lines.push(format!("stages: {} passed, {failed} failed", self.rows.len() - failed));
        lines.join("\n")
    }
}

impl StageRow {
    fn line(&self) -> String {
        format!("{:<12} {:>9}  {}", self.name, seconds(self.took), self.verdict.word())
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

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_what_passed_and_what_failed() {
        let mut report = GateReport::default();
        report.time("good", || Ok(())).unwrap();
        report.time("bad", || anyhow::bail!("no")).unwrap_err();
        let table = report.table();
        assert!(table.contains("bad") && table.contains("total"), "{table}");
        assert!(table.ends_with("stages: 1 passed, 1 failed"), "{table}");
    }
}
