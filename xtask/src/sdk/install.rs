//! The SDKs from their registries, below `target/tools`, as `sdk/` pins them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::sdk::client::Client;
use crate::servers::{self, apt, on_path};
use crate::workspace::Workspace;

/// Python, with the SDK in a virtual environment.
pub(crate) fn python(workspace: &Workspace) -> Result<Client> {
    let source = workspace.root().join("sdk");
    let venv = workspace.tools().join("sdk-python");
    let pins = source.join("requirements.txt");
    once(&venv, &pins, || {
        println!("installing the Python SDK from PyPI");
        servers::venv(&venv)?;
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        command::run(pip.arg(&pins)).context("cannot install the Python SDK: is PyPI reachable?")
    })?;
    let program = venv.join("bin/python");
    Ok(Client { name: "python", program, script: source.join("charges.py") })
}

/// Node, with the SDK beside a copy of the script: modules are looked for where the script is.
pub(crate) fn node(workspace: &Workspace) -> Result<Client> {
    let source = workspace.root().join("sdk");
    let folder = workspace.tools().join("sdk-node");
    // Debian's npm brings its Node.
    let npm = program("npm", "npm")?;
    let program = program("node", "nodejs")?;
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
    Ok(Client { name: "node", program, script: folder.join("charges.mjs") })
}

/// Installs unless the same pins were installed before; the copy of them is written last.
fn once(folder: &Path, pins: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = fs::read(pins)?;
    let installed = folder.join("installed");
    if fs::read(&installed).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(installed, wanted)?)
}

fn program(name: &str, package: &str) -> Result<PathBuf> {
    if let Some(program) = on_path(name) {
        return Ok(program);
    }
    apt(package)?;
    on_path(name).with_context(|| format!("Debian's {package} brought no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_installed_again_only_for_other_pins() {
        let folder = crate::servers::tests::folder("sdk-once");
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
        let folder = crate::servers::tests::folder("sdk-again");
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
