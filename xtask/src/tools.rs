//! Cargo subcommands that xtask needs, in pinned versions. They are installed below `target/tools`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use semel_servers::command;

use crate::workspace::Workspace;

pub(crate) const DENY: CargoTool =
    CargoTool { name: "cargo-deny", version: "0.20.2", options: &[] };

/// Without its default features: they upload reports, and need OpenSSL's headers for that.
pub(crate) const TARPAULIN: CargoTool =
    CargoTool { name: "cargo-tarpaulin", version: "0.37.5", options: &["--no-default-features"] };

#[derive(Debug)]
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
    options: &'static [&'static str],
}

impl CargoTool {
    /// The program's path, after installing it if this version is not there.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<PathBuf> {
        let root = workspace.tools().join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        if program.exists() {
            return Ok(program);
        }
        println!("installing {} {} (once, takes minutes)", self.name, self.version);
        let package = format!("{}@{}", self.name, self.version);
        let mut cargo = workspace.cargo(&["install", "--quiet", &package, "--root"]);
        command::run(cargo.arg(&root).args(self.options))
            .with_context(|| format!("cannot install {package}: is crates.io reachable?"))?;
        Ok(program)
    }
}
