//! The checkout that xtask works on: its folders, and its packages as `cargo metadata` lists them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use semel_servers::command;
use serde::Deserialize;

/// The part of the output of `cargo metadata --no-deps` that xtask reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<PackageTarget>,
    dependencies: Vec<Dependency>,
    manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    metadata: Option<PackageMetadata>,
}

/// The table `[package.metadata]`.
#[derive(Debug, Deserialize)]
struct PackageMetadata {
    gate: Option<GateMetadata>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GateMetadata {
    test_threads: NonZero<usize>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PackageTarget {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) crate_types: Vec<String>,
}

impl Workspace {
    /// Loads the workspace around the current folder.
    pub(crate) fn load() -> Result<Self> {
        let mut cargo = clean(Command::new(cargo()));
        cargo.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let json = command::capture(&mut cargo)?;
        serde_json::from_str(&json).context("cannot read the output of `cargo metadata`")
    }

    pub(crate) fn root(&self) -> &Path {
        &self.workspace_root
    }

    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    pub(crate) fn package_by_id(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target(&self) -> &Path {
        &self.target_directory
    }

    /// Installed tools. Below the checkout even when `CARGO_TARGET_DIR` is shared by several.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root().join("target/tools")
    }

    /// Data and state of the servers that this checkout runs.
    pub(crate) fn servers(&self) -> PathBuf {
        self.root().join("target/servers")
    }

    /// Reports, logs and build output of xtask itself.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root().join("target/xtask")
    }

    /// What commands print while other commands print, too.
    pub(crate) fn logs(&self) -> PathBuf {
        self.scratch().join("logs")
    }

    /// `cargo` with these arguments, run at the root. It never changes a lock file.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.command(cargo());
        command.args(locked(args));
        command
    }

    /// The same with a low priority, for compilers that run beside tests: these need a processor in time.
    pub(crate) fn low_priority_cargo(&self, args: &[&str]) -> Command {
        let mut command = self.command("nice");
        command.args(["-n", "10"]).arg(cargo()).args(locked(args));
        command
    }

    /// Any program, run at the root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean(Command::new(program));
        command.current_dir(self.root());
        command
    }
}

impl Package {
    /// The library of a package that is published on crates.io.
    pub(crate) fn published_library(&self) -> Option<&PackageTarget> {
        let published = self.publish.as_ref().is_none_or(|registries| !registries.is_empty());
        self.targets.iter().find(|target| published && target.is("lib"))
    }

    /// True when the manifest names `dependency`, for any target and purpose.
    pub(crate) fn depends_on(&self, dependency: &str) -> bool {
        self.dependencies.iter().any(|own| own.name == dependency)
    }

    /// How many tests of this package run at a time, if its manifest says so.
    pub(crate) fn test_threads(&self) -> Option<NonZero<usize>> {
        Some(self.metadata.as_ref()?.gate.as_ref()?.test_threads)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

impl PackageTarget {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|own| own == kind)
    }
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// With `--locked` behind the subcommand. Only `cargo fmt` has no such option: it resolves nothing.
fn locked<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut args = args.to_vec();
    if args.first().is_some_and(|subcommand| *subcommand != "fmt") {
        args.insert(1, "--locked");
    }
    args
}

/// Removes the variables that `cargo run` set for xtask: build scripts that watch them would run again
/// whenever cargo is called by another program than xtask.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(publish: &str, kind: &str) -> Package {
        let json = format!(
            r#"{{"id":"p","name":"p","features":{{}},"dependencies":[],"manifest_path":"/p/Cargo.toml","publish":{publish},
               "targets":[{{"name":"p","kind":["{kind}"],"crate_types":["lib"]}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_library_counts_as_published_unless_the_manifest_forbids_it() {
        assert!(package("null", "lib").published_library().is_some());
        assert!(package("[]", "lib").published_library().is_none());
        assert!(package("null", "bin").published_library().is_none());
    }
}
