//! Every `Cargo.lock` in the repository fits its manifests, those of packages outside the workspace included.

use anyhow::{Context, Result};
use semel_servers::command;

use crate::gate::{GateRun, GateStage, lint};

pub(crate) const STAGE: GateStage = GateStage {
    name: "locks",
    fix: "run `cargo update --workspace --manifest-path PACKAGE/Cargo.toml` and commit the lock file",
    run,
};

fn run(gate: &GateRun) -> Result<()> {
    let files = lint::files(&gate.workspace)?;
    let exists = |file: &&String| gate.workspace.root().join(file).exists();
    for lock in files.iter().filter(|file| file.ends_with("Cargo.lock")).filter(exists) {
        let manifest = lock.replace(".lock", ".toml");
        // Resolves the manifests, and fails instead of changing the lock file. Downloads no package.
        let mut cargo = gate.cargo(&["update", "--quiet", "--workspace", "--manifest-path"]);
        command::run(cargo.arg(&manifest)).with_context(|| format!("{lock} is not current"))?;
    }
    Ok(())
}
