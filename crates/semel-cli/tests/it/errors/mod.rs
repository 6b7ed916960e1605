//! Errors before the gateway serves are reported with exit code, place and fix.

mod case;
mod cases;
mod check;
mod help;
mod requests;
mod start;

use std::path::Path;

use tempfile::TempDir;

use crate::harness::{CommandOutput, run};

/// Flags that are enough to start; a test adds or replaces some.
const FLAGS: [&str; 8] = [
    "--listen",
    "127.0.0.1:0",
    "--upstream",
    "http://127.0.0.1:9",
    "--store",
    "memory:",
    "--principal",
    "anonymous",
];

/// A gateway that does not start, with these flags in place of the usual ones or beside them.
async fn gateway(flags: &[&str]) -> CommandOutput {
    gateway_in(tempfile::tempdir().unwrap().path(), flags).await
}

async fn gateway_in(folder: &Path, flags: &[&str]) -> CommandOutput {
    let usual = FLAGS.chunks(2).filter(|flag| !flags.contains(&flag[0])).flatten();
    let args: Vec<_> = ["gateway"].iter().chain(usual).chain(flags).copied().collect();
    run(folder, &args).await
}

/// A folder with this `semel.toml`.
fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("semel.toml"), text).unwrap();
    folder
}
