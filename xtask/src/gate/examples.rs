//! Every example of every package runs to success within a bound: an example is a promise too.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::command;
use crate::gate::{Gate, Stage};
use crate::workspace::Workspace;

pub(crate) const STAGE: Stage = Stage {
    name: "examples",
    fix: "make the example end by itself with success, within a minute",
    run,
};

const BOUND: Duration = Duration::from_secs(60);

/// A line of `cargo build --message-format=json`; other messages lack these fields.
#[derive(Debug, Deserialize)]
struct Artifact {
    package_id: String,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// An example by its package and name, as the manifest tells it.
#[derive(Debug)]
struct Example<'a> {
    package: &'a str,
    name: &'a str,
}

fn run(gate: &mut Gate) -> Result<()> {
    let examples = examples(&gate.workspace);
    if examples.is_empty() {
        println!("no package has an example");
        return Ok(());
    }
    let built = build(gate)?;
    let logs = gate.workspace.scratch().join("examples");
    fs::create_dir_all(&logs)?;
    for example in examples {
        let program = example
            .executable(&built)
            .with_context(|| format!("cargo built no example `{}`", example.name))?;
        run_one(gate, &program, &logs.join(format!("{}.log", example.name)))
            .with_context(|| format!("example `{}`", example.name))?;
        println!("example {} ended well", example.name);
    }
    Ok(())
}

fn examples(workspace: &Workspace) -> Vec<Example<'_>> {
    let mut examples = Vec::new();
    for package in workspace.packages() {
        for target in &package.targets {
            if target.is("example") && target.crate_types.iter().any(|it| it == "bin") {
                examples.push(Example { package: &package.id, name: &target.name });
            }
        }
    }
    examples
}

impl Example<'_> {
    fn executable(&self, built: &str) -> Option<PathBuf> {
        let artifacts =
            built.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
        let mut own = artifacts.filter(|artifact| {
            artifact.package_id == self.package
                && artifact.target.name == self.name
                && artifact.target.kind.iter().any(|kind| kind == "example")
        });
        own.find_map(|artifact| artifact.executable)
    }
}

fn build(gate: &Gate) -> Result<String> {
    command::capture(&mut gate.cargo(&[
        "build",
        "--workspace",
        "--examples",
        "--all-features",
        "--message-format=json-render-diagnostics",
    ]))
}

fn run_one(gate: &Gate, program: &Path, log: &Path) -> Result<()> {
    let output = File::create(log)?;
    let mut example = Command::new(program);
    example
        .current_dir(gate.workspace.root())
        .envs(gate.fleet.variables())
        .stdout(output.try_clone()?)
        .stderr(output);
    command::run_within(&mut example, BOUND).inspect_err(|_| {
        println!("{}", fs::read_to_string(log).unwrap_or_default());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_found_among_cargos_messages() {
        let built = concat!(
            r#"{"reason":"build-script-executed","package_id":"p"}"#,
            "\n",
            r#"{"package_id":"p","target":{"name":"p","kind":["lib"]},"executable":null}"#,
            "\n",
            r#"{"package_id":"p","target":{"name":"quick","kind":["example"]},"executable":"/t/quick"}"#,
        );
        let find = |name| Example { package: "p", name }.executable(built);
        assert_eq!(find("quick"), Some(PathBuf::from("/t/quick")));
        assert_eq!(find("slow"), None);
    }
}
