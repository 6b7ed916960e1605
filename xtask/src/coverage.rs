//! Line coverage by tarpaulin's LLVM engine. It reads the compiler's profiles itself, so it needs neither the
//! `llvm-tools` component nor an LLVM of the system in a version that fits.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use semel_servers::command;
use serde::Deserialize;

use crate::workspace::{Package, Workspace};
use crate::{gate, tools};

/// The least line coverage of a crate, in percent.
const FLOORS: &[(&str, f64)] = &[("semel-core", 80.0), ("semel-http", 80.0), ("semel-inbox", 80.0)];

/// Left out: its coverage says nothing about the product.
const EXCLUDED: &str = "xtask";

#[derive(Debug, Deserialize)]
struct CoverageReport {
    files: Vec<CoveredFile>,
}

#[derive(Debug, Deserialize)]
struct CoveredFile {
    /// The absolute path, in parts.
    path: Vec<PathBuf>,
    covered: u64,
    coverable: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LineCount {
    covered: u64,
    coverable: u64,
}

/// Runs the instrumented tests, prints a table and fails when a crate is below its floor.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let report = measure(workspace)?;
    let mut crates = BTreeMap::new();
    for package in workspace.packages().iter().filter(|package| package.name != EXCLUDED) {
        if let Some(lines) = print(package, &report) {
            crates.insert(package.name.as_str(), lines);
        }
    }
    for &(name, floor) in FLOORS {
        let lines = crates.get(name).copied().unwrap_or_default();
        if lines.percent() < floor {
            bail!("{name}: {:.1} % of lines, below {floor} %: add tests", lines.percent());
        }
    }
    Ok(())
}

fn measure(workspace: &Workspace) -> Result<CoverageReport> {
    let folder = workspace.scratch().join("coverage");
    fs::create_dir_all(&folder)?;
    let servers = gate::start_servers(workspace)?;
    let mut tarpaulin = workspace.command(tools::TARPAULIN.ensure(workspace)?);
    tarpaulin
        .envs(servers.variables())
        .args(["tarpaulin", "--locked", "--engine", "llvm", "--workspace", "--exclude", EXCLUDED])
        // Seconds in which a test may print nothing: instrumented code is slow.
        .args(["--timeout", "900"])
        .args(["--all-features", "--skip-clean", "--out", "Json", "--output-dir"])
        .arg(&folder)
        .arg("--target-dir")
        .arg(folder.join("target"));
    command::run(&mut tarpaulin).context("the tests must pass before they are measured")?;
    let json = fs::read_to_string(folder.join("tarpaulin-report.json"))?;
    serde_json::from_str(&json).context("cannot read the report of tarpaulin")
}

/// Prints one crate and its files; `None` when nothing of it was measured.
fn print(package: &Package, report: &CoverageReport) -> Option<LineCount> {
    // `src/` only: tests and examples would raise the number.
    let source = package.folder().join("src");
    let mut files = BTreeMap::new();
    for file in &report.files {
        let path: PathBuf = file.path.iter().collect();
        if let Ok(inner) = path.strip_prefix(&source)
            && file.coverable > 0
        {
            files.insert(
                inner.to_owned(),
                LineCount { covered: file.covered, coverable: file.coverable },
            );
        }
    }
    let total = files.values().copied().reduce(LineCount::and)?;
    println!("{}", total.row(&package.name));
    for (path, lines) in files {
        println!("{}", lines.row(&format!("  src/{}", path.display())));
    }
    Some(total)
}

impl LineCount {
    fn and(self, other: Self) -> Self {
        Self { covered: self.covered + other.covered, coverable: self.coverable + other.coverable }
    }

    #[expect(clippy::cast_precision_loss, reason = "line counts are far below 2^52")]
    fn percent(self) -> f64 {
        if self.coverable == 0 { 0.0 } else { 100.0 * self.covered as f64 / self.coverable as f64 }
    }

    fn row(self, name: &str) -> String {
        let Self { covered, coverable } = self;
        format!("{name:<48} {:>5.1} %  {covered:>5} of {coverable}", self.percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_of_all_lines_not_of_files() {
        let total = LineCount { covered: 1, coverable: 1 }
            .and(LineCount { covered: 0, coverable: 3 })
            .percent();
        assert!((total - 25.0).abs() < 1e-9);
    }

    #[test]
    fn an_unmeasured_crate_has_zero_percent() {
        assert!(LineCount::default().percent() < 1e-9);
    }
}
