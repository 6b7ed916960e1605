//! The tests of the workspace: built once, then run side by side.

mod binary;
mod runner;

use anyhow::{Context, Result, anyhow, ensure};
use semel_servers::command;

use crate::cargo_messages::BuildMessages;
use crate::gate::tests::binary::TestBinary;
use crate::gate::{GateRun, GateStage};

/// Builds what the later stages run, so that they need no cargo: it would wait for the one that compiles meanwhile.
pub(crate) const BUILD: GateStage = GateStage {
    name: "build",
    fix: "correct the errors above; `cargo test --workspace --all-features --no-run` repeats them",
    run: build,
};

pub(crate) const STAGE: GateStage = GateStage {
    name: "tests",
    fix: "correct the failing tests above; `cargo xtask test -p CRATE` repeats those of a crate",
    run: |gate| {
        let binaries = binaries(gate)?;
        ensure!(!binaries.is_empty(), "there is no test to run");
        runner::run(gate, binaries)
    },
};

/// Which tests a run of the gate takes.
#[derive(Debug)]
pub(crate) enum TestScope {
    Everything,
    /// Leaves out the integration tests below `proof/`: chaos runs, faults, nestings of layers, models.
    Quick,
    /// The tests of these packages.
    Packages(Vec<String>),
}

fn build(gate: &GateRun) -> Result<()> {
    let mut messages = cargo_build(gate, &["test", "--no-run", "--lib", "--bins", "--tests"])?;
    if matches!(gate.scope, TestScope::Everything) {
        messages += &cargo_build(gate, &["build", "--bins", "--examples"])?;
    }
    let built = BuildMessages::parse(&messages);
    gate.built.set(built).map_err(|_| anyhow!("the tests are built already"))
}

/// The quick scope builds all tests, too: a choice of packages would change the features of their
/// dependencies, and compile these again.
fn cargo_build(gate: &GateRun, args: &[&str]) -> Result<String> {
    let mut cargo = gate.cargo(args);
    cargo.args(["--all-features", "--message-format=json-render-diagnostics"]);
    match &gate.scope {
        TestScope::Everything | TestScope::Quick => cargo.arg("--workspace"),
        TestScope::Packages(names) => cargo.args(names.iter().flat_map(|name| ["-p", name])),
    };
    command::capture(&mut cargo)
}

/// The test binaries of the scope, the longest first, as far as that is known without a run: tests below
/// `proof/` wait for whole chaos runs, integration tests for servers and leases, unit tests for nothing.
fn binaries(gate: &GateRun) -> Result<Vec<TestBinary>> {
    let mut binaries = Vec::new();
    for test in gate.built()?.tests() {
        let package = gate.workspace.package_by_id(&test.package_id);
        binaries.push(TestBinary::new(&gate.workspace, package.context("no such package")?, test));
    }
    if matches!(gate.scope, TestScope::Quick) {
        binaries.retain(|binary| !(binary.is_proof && binary.is_integration));
    }
    binaries.sort_by_key(|binary| (!binary.is_proof, !binary.is_integration));
    Ok(binaries)
}
