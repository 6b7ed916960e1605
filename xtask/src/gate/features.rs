//! The facade builds without warnings, with no feature and with each feature alone.

use anyhow::{Context, Result};

use crate::gate::{GateRun, GateStage};

pub(crate) const STAGE: GateStage =
    GateStage { name: "features", fix: "make the named feature build without the others", run };

const FACADE: &str = "semel";

fn run(gate: &GateRun) -> Result<()> {
    let package = gate.workspace.package(FACADE).context("the facade is gone")?;
    check(gate, None)?;
    let features = package.features.keys().filter(|feature| *feature != "default");
    features.into_iter().try_for_each(|feature| check(gate, Some(feature)))
}

fn check(gate: &GateRun, feature: Option<&str>) -> Result<()> {
    let mut cargo = gate.low_priority_cargo(&["clippy", "-p", FACADE, "--no-default-features"]);
    cargo.args(feature.map(|feature| format!("--features={feature}")));
    cargo.args(["--", "-D", "warnings"]);
    let choice = feature.map_or("no feature".to_owned(), |it| format!("only feature `{it}`"));
    gate.run_beside_tests("features", &mut cargo)
        .with_context(|| format!("{FACADE} with {choice}"))?;
    println!("{FACADE} builds with {choice}");
    Ok(())
}
