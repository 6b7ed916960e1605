//! Runs the model checker in bounds that are too large for the gate.

use anyhow::{Context, Result};
use semel_servers::command;

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo(&["run", "--release", "--package", "semel-model"]);
    command::run(&mut cargo)
        .context("a rule is broken; docs/PROOF.md explains how to read the counterexample")
}
