//! The public-API snapshots: `docs/api/<crate>.txt` lists every public item of a published library,
//! so a change of the API shows in review as a change of a text file.
//!
//! rustdoc's JSON is unstable; `RUSTC_BOOTSTRAP` enables it on the stable toolchain. Only rustdoc gets that
//! variable: build scripts that watch it would run again, and all dependencies would be compiled again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use crate::gate::output;
use crate::workspace::{Package, Workspace};

const FIX: &str = "run `cargo xtask api --update` if the change is meant, and commit docs/api";

/// Auto traits whose loss breaks no caller. `Send` and `Sync` are listed: losing them breaks callers.
const NOISE: &[&str] = &[
    "core::marker::Freeze for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

#[derive(Deserialize)]
struct RustdocHeader {
    format_version: u32,
}

/// One snapshot file: its path, and the text that the code would give it.
struct ApiSnapshot {
    path: PathBuf,
    text: String,
}

/// Prints the difference between the snapshots and the code, and fails when there is one.
pub(crate) fn compare(workspace: &Workspace) -> Result<()> {
    let snapshots = snapshots(workspace)?;
    let mut differing = Vec::new();
    for snapshot in &snapshots {
        let old = fs::read_to_string(&snapshot.path).unwrap_or_default();
        let lines = difference(&old, &snapshot.text);
        if !lines.is_empty() {
            let name = name(&snapshot.path);
            println!("--- docs/api/{name}\n+++ the code\n{}", lines.join("\n"));
            differing.push(name);
        }
    }
    for path in strays(workspace, &snapshots)? {
        println!("--- docs/api/{}: no such published crate", name(&path));
        differing.push(name(&path));
    }
    ensure!(differing.is_empty(), "public API differs: {}; {FIX}", differing.join(", "));
    Ok(())
}

/// Rewrites all snapshots.
pub(crate) fn update(workspace: &Workspace) -> Result<()> {
    let snapshots = snapshots(workspace)?;
    fs::create_dir_all(folder(workspace))?;
    for path in strays(workspace, &snapshots)? {
        fs::remove_file(path)?;
    }
    for snapshot in snapshots {
        fs::write(&snapshot.path, snapshot.text)?;
        println!("wrote docs/api/{}", name(&snapshot.path));
    }
    Ok(())
}

fn snapshots(workspace: &Workspace) -> Result<Vec<ApiSnapshot>> {
    let published =
        |package: &Package| Some((package.name.clone(), package.published_library()?.name.clone()));
    let published: Vec<_> = workspace.packages().iter().filter_map(published).collect();
    document(workspace)?;
    published.iter().map(|(package, library)| snapshot(workspace, package, library)).collect()
}

fn snapshot(workspace: &Workspace, package: &str, library: &str) -> Result<ApiSnapshot> {
    let json = workspace.target().join("doc").join(format!("{}.json", library.replace('-', "_")));
    check_format(&fs::read_to_string(&json)?)?;
    let api = public_api::Builder::from_rustdoc_json(&json).omit_blanket_impls(true).build()?;
    let mut text = String::new();
    for item in api.items().map(ToString::to_string).filter(|item| !is_noise(item)) {
        text.push_str(&item);
        text.push('\n');
    }
    Ok(ApiSnapshot { path: folder(workspace).join(format!("{package}.txt")), text })
}

/// Builds rustdoc's JSON of all libraries of the workspace.
///
/// Of all, not only of the published ones: a choice of packages would change the features of dependencies,
/// and compile these again.
fn document(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.low_priority_cargo(&["doc", "--workspace", "--no-deps", "--lib"]);
    cargo
        .arg("--all-features")
        .env("RUSTDOC", unstable_rustdoc(workspace)?)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    output::run_logged(&mut cargo, &workspace.logs().join("api.log"))
}

/// A script that runs rustdoc with its unstable options.
fn unstable_rustdoc(workspace: &Workspace) -> Result<PathBuf> {
    let script = workspace.scratch().join("unstable-rustdoc");
    fs::create_dir_all(workspace.scratch())?;
    fs::write(&script, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

fn check_format(json: &str) -> Result<()> {
    let written = serde_json::from_str::<RustdocHeader>(json)?.format_version;
    let read = rustdoc_types::FORMAT_VERSION;
    if written != read {
        bail!(
            "this rustdoc writes JSON format {written}, xtask reads {read}: use the Rust version \
             that the workspace names, or move `public-api` and `rustdoc-types` in \
             xtask/Cargo.toml to versions that read {written}"
        );
    }
    Ok(())
}

fn is_noise(item: &str) -> bool {
    NOISE.iter().any(|noise| item.starts_with("impl") && item.contains(noise))
}

/// Lines only in `old` (`-`) and only in `new` (`+`), each in its order.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) =
        (old.lines().collect(), new.lines().collect());
    let removed = old.lines().filter(|line| !after.contains(line)).map(|line| format!("-{line}"));
    let added = new.lines().filter(|line| !before.contains(line)).map(|line| format!("+{line}"));
    removed.chain(added).collect()
}

/// Snapshot files that belong to no published crate.
fn strays(workspace: &Workspace, snapshots: &[ApiSnapshot]) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder(workspace)) else { return Ok(Vec::new()) };
    let mut strays = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let known = snapshots.iter().any(|snapshot| snapshot.path == path);
        if !known && path.extension().is_some_and(|it| it == "txt") {
            strays.push(path);
        }
    }
    Ok(strays)
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root().join("docs/api")
}

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_lists_removed_and_added_items() {
        let lines = difference("pub fn a()\npub fn b()\n", "pub fn b()\npub fn c()\n");
        assert_eq!(lines, ["-pub fn a()", "+pub fn c()"]);
    }

    #[test]
    fn equal_snapshots_have_no_difference() {
        assert!(difference("pub fn a()\n", "pub fn a()\n").is_empty());
    }

    #[test]
    fn send_is_kept_and_freeze_is_not() {
        assert!(!is_noise("impl core::marker::Send for semel_core::Key"));
        assert!(is_noise("impl core::marker::Freeze for semel_core::Key"));
    }

    #[test]
    fn another_json_format_is_refused_with_a_remedy() {
        let error = check_format(r#"{"format_version": 1}"#).unwrap_err().to_string();
        assert!(error.contains("format 1") && error.contains("xtask/Cargo.toml"), "{error}");
    }
}
