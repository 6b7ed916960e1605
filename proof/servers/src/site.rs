//! The folders, port, log and user of one run of a server.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User};

use crate::server::TestServer;

/// How many lines of the log an error contains.
const TAIL: usize = 30;

/// The folders, ports and user of one run.
#[derive(Debug)]
pub struct ServerSite {
    /// The program.
    pub program: PathBuf,
    /// Its port.
    pub port: u16,
    /// A second port, for servers that need one: for TLS, or for a controller.
    pub second_port: u16,
    /// The folder below `target/servers` with the log and the record.
    pub folder: PathBuf,
    /// The folder that the server writes to. Usually in `folder`.
    pub data: PathBuf,
    account: Option<User>,
}

impl ServerSite {
    /// Creates the folders and picks free ports.
    pub(crate) fn open(server: &TestServer, program: PathBuf, home: &Path) -> Result<Self> {
        let account = server.account.map(account).transpose()?.flatten();
        fs::create_dir_all(home)?;
        let folder = unique(home, server.name)?;
        let data = data(&folder, server.name, account.as_ref()).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
        let (port, second_port) = (free_port()?, free_port()?);
        Ok(Self { program, port, second_port, folder, data, account })
    }

    /// A command of this server: run in the data folder, as the server's user.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.data).stdin(Stdio::null());
        if let Some(user) = &self.account {
            become_user(&mut command, user);
        }
        command
    }

    /// Redirects the output of `command` to the log.
    pub(crate) fn logged(&self, mut command: Command) -> Result<Command> {
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Copies `file` to the data folder, readable by the server's user only.
    pub(crate) fn give(&self, file: PathBuf, name: &str) -> Result<()> {
        let copy = self.data.join(name);
        fs::copy(&file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        fs::set_permissions(&copy, Permissions::from_mode(0o600))?;
        if let Some(user) = &self.account {
            chown(&copy, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(())
    }

    /// The end of the log.
    pub(crate) fn tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Removes its folders.
    pub(crate) fn remove(&self) -> Result<()> {
        remove(&self.data)?;
        remove(&self.folder)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// Removes a folder, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The user to run as. `None` when we are not root: then only our own user is possible.
fn account(name: &str) -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name(name)?;
    user.with_context(|| format!("no user `{name}` on this machine")).map(Some)
}

fn become_user(command: &mut Command, user: &User) {
    command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).env("HOME", "/nonexistent");
}

/// Creates a data folder that the server's user can reach. A checkout may lie below a folder that is closed to other
/// users; then a temporary folder is used.
fn data(folder: &Path, name: &str, account: Option<&User>) -> Result<PathBuf> {
    let Some(user) = account else {
        return unique(folder, "data");
    };
    // The server's user has to pass through this folder.
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for place in [folder, &std::env::temp_dir(), Path::new("/var/tmp")] {
        let data = unique(place, &format!("semel-{name}"))?;
        chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        if can_write(user, &data) {
            return Ok(data);
        }
        fs::remove_dir(&data)?;
    }
    bail!("user `{}` can reach neither target/servers nor a temporary folder", user.name)
}

/// Tries it, because permission bits, access lists and mount options all count.
fn can_write(user: &User, folder: &Path) -> bool {
    let mut test = Command::new("test");
    become_user(test.arg("-w").arg(folder).current_dir("/"), user);
    test.status().is_ok_and(|status| status.success())
}

/// Creates a new folder that is closed to other users. `create` fails if it exists, so two runs never share one.
fn unique(parent: &Path, name: &str) -> Result<PathBuf> {
    let pid = std::process::id();
    for number in 0..1000 {
        let folder = parent.join(format!("{name}-{pid}-{number}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", folder.display()));
            }
        }
    }
    bail!("too many folders named {name}-{pid} in {}", parent.display())
}

/// A folder below the `target` of this checkout, even when several checkouts share `CARGO_TARGET_DIR`.
#[must_use]
pub fn scratch(name: &str) -> PathBuf {
    // cargo sets the variable when it runs us. A shared target folder may hold the build of another checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(&package).join("target").join(name)
}

/// A free port outside of the range that the kernel gives to clients: a client port could block a restart, and a
/// client that connects to a dead server could connect to itself.
///
/// # Errors
///
/// When there is none.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const PORTS: std::ops::Range<u16> = 15_000..32_000;
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes start far apart and count up, so that they seldom try the same port.
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..count {
        let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + u16::try_from(at)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port from {} to {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_of_one_name_differ() {
        let parent = crate::tests::folder("unique");
        assert_ne!(unique(&parent, "redis").unwrap(), unique(&parent, "redis").unwrap());
        remove(&parent).unwrap();
    }

    #[test]
    fn removing_what_is_gone_succeeds() {
        remove(Path::new("no/such/folder")).unwrap();
    }

    #[test]
    fn a_user_that_cannot_reach_the_checkout_gets_a_temporary_folder() {
        // Needs a second user, so it tests something only where tests run as root.
        let Some(user) = account("nobody").unwrap() else { return };
        let closed = crate::tests::folder("closed");
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let inner = unique(&closed, "inner").unwrap();
        let data = data(&inner, "test", Some(&user)).unwrap();
        assert!(!data.starts_with(&closed), "{}", data.display());
        remove(&data).unwrap();
        remove(&closed).unwrap();
    }
}
