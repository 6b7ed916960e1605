//! The output of commands that run side by side: in a file each, printed whole when the command fails.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use semel_servers::command;

/// No command of the gate takes as long, compilers on a slow machine included.
const BOUND: Duration = Duration::from_secs(60 * 60);

/// Runs `command` to its end.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    run_logged_within(command, log, BOUND)
}

/// Runs `command`, and kills it and its children when `bound` has passed.
pub(crate) fn run_logged_within(command: &mut Command, log: &Path, bound: Duration) -> Result<()> {
    let result = run_into(command, log, bound);
    if result.is_err() {
        println!("{}", String::from_utf8_lossy(&fs::read(log).unwrap_or_default()));
    }
    result
}

/// Runs `command` with its output in `log`, and prints nothing.
pub(crate) fn run_into(command: &mut Command, log: &Path, bound: Duration) -> Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command::run_within(command.stdout(output.try_clone()?).stderr(output), bound)
}
