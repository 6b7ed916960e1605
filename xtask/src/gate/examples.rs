//! Every example of every package ends by itself with success.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::gate::{GateRun, GateStage, output};
use crate::workspace::Workspace;

pub(crate) const STAGE: GateStage = GateStage {
    name: "examples",
    fix: "make the example end by itself with success, within a minute",
    run,
};

const BOUND: Duration = Duration::from_secs(60);

/// An example, by its package's id and its own name.
#[derive(Debug)]
struct Example<'a> {
    package: &'a str,
    name: &'a str,
}

fn run(gate: &GateRun) -> Result<()> {
    for example in examples(&gate.workspace) {
        let program = gate.built()?.program(example.package, "example", example.name);
        let program =
            program.with_context(|| format!("cargo built no example `{}`", example.name))?;
        run_one(gate, program, example.name)
            .with_context(|| format!("example `{}`", example.name))?;
        println!("example {} passed", example.name);
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

/// Users give an example the address of their server in the second of these variables.
const USERS_VARIABLES: [(&str, &str); 3] = [
    ("SEMEL_TEST_POSTGRES_URL", "DATABASE_URL"),
    ("SEMEL_TEST_NATS_URL", "NATS_URL"),
    ("SEMEL_TEST_KAFKA_URL", "KAFKA_URL"),
];

fn run_one(gate: &GateRun, program: &Path, name: &str) -> Result<()> {
    let mut example = gate.workspace.command(program);
    example.envs(gate.variables());
    for (name, url) in gate.variables() {
        example.envs(USERS_VARIABLES.iter().filter(|it| it.0 == name).map(|it| (it.1, url)));
    }
    let log = gate.workspace.logs().join(format!("example-{name}.log"));
    output::run_logged_within(&mut example, &log, BOUND)
}
