//! Where one run of a server lives: its folders, its port, its log and the user it runs as.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User};

use crate::servers::server::Server;

/// Lines of a log that an error quotes.
const TAIL: usize = 30;

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) program: PathBuf,
    pub(crate) port: u16,
    /// Below `target/servers`: the log and the record.
    pub(crate) folder: PathBuf,
    /// What the server may write to. Usually in `folder`.
    pub(crate) data: PathBuf,
    account: Option<User>,
}

impl Site {
    /// Makes the folders and picks a port that is free now.
    pub(crate) fn open(server: &Server, program: PathBuf, home: &Path) -> Result<Self> {
        let account = server.account.map(account).transpose()?.flatten();
        fs::create_dir_all(home)?;
        let folder = unique(home, server.name)?;
        let data = data(&folder, server.name, account.as_ref()).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
        Ok(Self { program, port: free_port()?, folder, data, account })
    }

    /// A command of this server: run in the data folder, as the server's user.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.data).stdin(Stdio::null());
        if let Some(user) = &self.account {
            become_user(&mut command, user);
        }
        command
    }

    /// Sends what `command` prints to the log.
    pub(crate) fn logged(&self, mut command: Command) -> Result<Command> {
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// The end of the log.
    pub(crate) fn tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Removes every trace.
    pub(crate) fn remove(&self) -> Result<()> {
        remove(&self.data)?;
        remove(&self.folder)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// Removes a folder that may be gone already.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The user to run as; none when we are not root and so can only be ourselves.
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

/// A folder for the server's data that its user can really reach. A checkout may lie below a folder
/// that is closed to others; then a folder for temporary files has to do.
fn data(folder: &Path, name: &str, account: Option<&User>) -> Result<PathBuf> {
    let Some(user) = account else {
        return unique(folder, "data");
    };
    // The user has to pass through.
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

/// Asked by trying: permission bits, access lists and mount options all count.
fn can_write(user: &User, folder: &Path) -> bool {
    let mut test = Command::new("test");
    become_user(test.arg("-w").arg(folder).current_dir("/"), user);
    test.status().is_ok_and(|status| status.success())
}

/// A new folder, closed to others. `create` fails on one that exists, so two runs never share one.
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

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_of_one_name_differ() {
        let parent = crate::servers::tests::folder("unique");
        assert_ne!(unique(&parent, "redis").unwrap(), unique(&parent, "redis").unwrap());
        remove(&parent).unwrap();
    }

    #[test]
    fn removing_what_is_gone_succeeds() {
        remove(Path::new("no/such/folder")).unwrap();
    }

    #[test]
    fn a_user_that_cannot_reach_the_checkout_gets_a_temporary_folder() {
        // Needs a second user, so it proves something only where tests run as root.
        let Some(user) = account("nobody").unwrap() else { return };
        let closed = crate::servers::tests::folder("closed");
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let inner = unique(&closed, "inner").unwrap();
        let data = data(&inner, "test", Some(&user)).unwrap();
        assert!(!data.starts_with(&closed), "{}", data.display());
        remove(&data).unwrap();
        remove(&closed).unwrap();
    }
}
