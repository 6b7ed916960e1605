//! Each feature of the facade builds alone and without warnings, and so does the facade without any.

use anyhow::{Context, Result};
use semel_servers::command;

use crate::gate::{Gate, Stage};

pub(crate) const STAGE: Stage =
    Stage { name: "features", fix: "make the named feature build without the others", run };

const FACADE: &str = "semel";

fn run(gate: &mut Gate) -> Result<()> {
    let Some(package) = gate.workspace.package(FACADE) else {
        println!("no package `{FACADE}` yet");
        return Ok(());
    };
    check(gate, None)?;
    let features = package.features.keys().filter(|feature| *feature != "default");
    features.into_iter().try_for_each(|feature| check(gate, Some(feature)))
}

fn check(gate: &Gate, feature: Option<&str>) -> Result<()> {
    let mut cargo = gate.cargo(&["clippy", "--quiet", "-p", FACADE, "--no-default-features"]);
    cargo.args(feature.map(|feature| format!("--features={feature}")));
    cargo.args(["--", "-D", "warnings"]);
    let choice = feature.map_or("no feature".to_owned(), |it| format!("only feature `{it}`"));
    command::run(&mut cargo).with_context(|| format!("{FACADE} with {choice}"))?;
    println!("{FACADE} builds with {choice}");
    Ok(())
}
