//! One test binary, run as cargo would run it.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;

use crate::cargo_messages::BuiltArtifact;
use crate::workspace::{Package, Workspace};

/// The folder whose packages hold the tests of promises across crates.
const PROOF: &str = "proof";

/// How many tests run at a time in one binary, unless its package sets `[package.metadata.gate]`. Measured, see
/// docs/adr/0006-gate.md.
const THREADS: usize = 2;

#[derive(Debug)]
pub(crate) struct TestBinary {
    /// Such as `semel-http it`, or `semel-http lib`.
    pub(crate) name: String,
    /// True when its package is below `proof/`.
    pub(crate) is_proof: bool,
    /// True for a file in `tests/`, false for unit tests.
    pub(crate) is_integration: bool,
    /// How many of its tests run at a time.
    threads: usize,
    package: String,
    folder: PathBuf,
    program: PathBuf,
}

impl TestBinary {
    pub(crate) fn new(workspace: &Workspace, package: &Package, built: &BuiltArtifact) -> Self {
        let is_integration = built.target.is("test");
        let target = if built.target.is("lib") { "lib" } else { &built.target.name };
        Self {
            name: format!("{} {target}", package.name),
            is_proof: package.folder().starts_with(workspace.root().join(PROOF)),
            is_integration,
            threads: package.test_threads().map_or(THREADS, NonZero::get),
            package: package.name.clone(),
            folder: package.folder().to_owned(),
            program: built.executable.clone().unwrap_or_default(),
        }
    }

    /// The binary in the folder and environment that cargo gives to tests.
    pub(crate) fn command(&self, workspace: &Workspace) -> Command {
        let mut command = workspace.command(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env("RUST_TEST_THREADS", self.threads.to_string());
        command
    }
}
