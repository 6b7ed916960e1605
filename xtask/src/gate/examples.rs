//! Every example of every package runs to success within a bound: an example is a promise too.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use semel_servers::command;

use crate::cargo_messages;
use crate::gate::{Gate, Stage};
use crate::workspace::Workspace;

pub(crate) const STAGE: Stage = Stage {
    name: "examples",
    fix: "make the example end by itself with success, within a minute",
    run,
};

const BOUND: Duration = Duration::from_secs(60);

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
        let program = cargo_messages::executable(&built, example.package, "example", example.name)
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

fn build(gate: &Gate) -> Result<String> {
    command::capture(&mut gate.cargo(&[
        "build",
        "--workspace",
        "--examples",
        "--all-features",
        "--message-format=json-render-diagnostics",
    ]))
}

const POSTGRES: &str = "SEMEL_TEST_POSTGRES_URL";

/// Examples are for users: they know a database by the name that users give it.
const fn as_users_do<'a>((_, url): (&'a str, &'a str)) -> (&'static str, &'a str) {
    ("DATABASE_URL", url)
}

fn run_one(gate: &Gate, program: &Path, log: &Path) -> Result<()> {
    let output = File::create(log)?;
    let mut example = Command::new(program);
    example
        .current_dir(gate.workspace.root())
        .envs(gate.servers.variables())
        .envs(gate.servers.variables().filter(|(name, _)| *name == POSTGRES).map(as_users_do))
        .stdout(output.try_clone()?)
        .stderr(output);
    command::run_within(&mut example, BOUND).inspect_err(|_| {
        println!("{}", fs::read_to_string(log).unwrap_or_default());
    })
}
