//! Finds what compilers accept but no commit should contain: paths of one engineer's machine, tests that do
//! not run, code that is not written yet.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use semel_servers::command;

use crate::gate::{GateRun, GateStage};
use crate::workspace::Workspace;

pub(crate) const STAGE: GateStage =
    GateStage { name: "lint", fix: "change the lines named above", run };

// Each is written in two halves, so that this file passes its own lint.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const CODE: &[&str] =
    &[concat!("#[ign", "ore"), concat!("to", "do!("), concat!("unimple", "mented!(")];

fn run(gate: &GateRun) -> Result<()> {
    let mut offences = 0;
    for file in files(&gate.workspace)? {
        // A deleted file that git still lists, a symbolic link and a picture have no text.
        let Ok(text) = fs::read_to_string(gate.workspace.root().join(&file)) else { continue };
        for (line, word) in offending_lines(&file, &text) {
            println!("{file}:{line}: `{word}`");
            offences += 1;
        }
    }
    ensure!(offences == 0, "{offences} lines break the rules of docs/adr/0006-gate.md");
    Ok(())
}

/// Every file that git tracks or would add.
pub(crate) fn files(workspace: &Workspace) -> Result<Vec<String>> {
    let mut git = workspace.command("git");
    // Git refuses a clone that belongs to another user; listing its files is harmless.
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]);
    git.args(["--cached", "--others", "--exclude-standard"]);
    Ok(command::capture(&mut git)?.split_terminator('\0').map(str::to_owned).collect())
}

fn offending_lines(file: &str, text: &str) -> Vec<(usize, &'static str)> {
    let is_rust = Path::new(file).extension().is_some_and(|it| it == "rs");
    let code = if is_rust { CODE } else { &[] };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let paths = PATHS.iter().filter(|path| has_path(line, path));
        let words = code.iter().filter(|word| line.contains(**word));
        found.extend(paths.chain(words).map(|word| (number, *word)));
    }
    found
}

/// True when `line` has `path` at the start of a path, not in the middle of a longer one.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|it| it.is_alphanumeric() || "._-*~}".contains(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_path_is_found_in_any_file() {
        let text = format!("fine\nsee `{}x`\n", PATHS[0]);
        assert_eq!(offending_lines("README.md", &text), [(2, PATHS[0])]);
    }

    #[test]
    fn a_longer_path_is_not_taken_for_a_machine_path() {
        assert!(offending_lines("a.md", &format!("docs{}x", PATHS[1])).is_empty());
    }

    #[test]
    fn unfinished_code_is_found_in_rust_only() {
        let text = format!("    {})\n", CODE[1]);
        assert_eq!(offending_lines("src/a.rs", &text), [(1, CODE[1])]);
        assert!(offending_lines("a.md", &text).is_empty());
    }

    #[test]
    fn this_file_passes_its_own_lint() {
        assert!(offending_lines("lint.rs", include_str!("lint.rs")).is_empty());
    }
}
