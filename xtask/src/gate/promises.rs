//! Every test that `docs/PROMISE.md` names in a column `shown by` exists.

use std::collections::HashSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::gate::{GateRun, GateStage, lint};

pub(crate) const STAGE: GateStage = GateStage {
    name: "promises",
    fix: "name a test in the last column of the row, as it is called in the code",
    run,
};

const PAGE: &str = "docs/PROMISE.md";

/// The title of the last column, in tables that are checked.
const COLUMN: &str = "shown by";

fn run(gate: &GateRun) -> Result<()> {
    let root = gate.workspace.root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let rows = rows(&page);
    ensure!(!rows.is_empty(), "{PAGE} has no table with a column `{COLUMN}`");
    let mut existing = HashSet::new();
    for file in lint::files(&gate.workspace)?.iter().filter(|file| file.ends_with(".rs")) {
        if let Ok(text) = fs::read_to_string(root.join(file)) {
            existing.extend(functions(&text).map(str::to_owned));
        }
    }
    let mut wrong = 0;
    for (line, tests) in &rows {
        let missing: Vec<_> = tests.iter().filter(|test| !existing.contains(**test)).collect();
        if tests.is_empty() || !missing.is_empty() {
            println!("{PAGE}:{line}: no such test {missing:?}");
            wrong += 1;
        }
    }
    ensure!(wrong == 0, "{wrong} rows of {PAGE} are not shown by a test");
    Ok(())
}

/// The rows of checked tables: the number of their line, and the tests that they name.
fn rows(page: &str) -> Vec<(usize, Vec<&str>)> {
    let (mut rows, mut checked) = (Vec::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            checked = false;
            continue;
        };
        let last = cells.rsplit('|').next().unwrap_or_default();
        if last.trim() == COLUMN {
            checked = true;
        } else if checked && !last.trim().starts_with("--") {
            rows.push((number, last.split('`').skip(1).step_by(2).collect()));
        }
    }
    rows
}

fn functions(code: &str) -> impl Iterator<Item = &str> {
    code.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_the_tests_they_name() {
        let page =
            "| a | shown by |\n|---|---|\n| x | `one`, `two` |\n| y | |\n\n| b |\n|---|\n| z |\n";
        assert_eq!(rows(page), [(3, vec!["one", "two"]), (4, vec![])]);
    }

    #[test]
    fn functions_are_found_by_name() {
        let code = "#[test]\nfn a_b() {}\nasync fn c<T>() {}";
        assert_eq!(functions(code).collect::<Vec<_>>(), ["a_b", "c"]);
    }
}
