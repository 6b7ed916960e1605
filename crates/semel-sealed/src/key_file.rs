//! A file of seal keys, which may change while the process runs.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use semel_core::{Error, Result};
use zeroize::Zeroizing;

use crate::seal_keys::SealKeys;

/// A file with seal keys. The caller reads it again on demand, or when it has changed and is no longer written.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// The stamp of the file at the last read, or attempt to read it.
    read: Option<FileStamp>,
    /// The stamp at the last check.
    last_check: Option<FileStamp>,
}

/// Almost certainly differs if the content of the file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    file: u64,
}

impl KeyFile {
    /// The largest file that is read.
    pub const MAX_BYTES: u64 = 64 * 1024;

    /// The file at `path`. It is not read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: None, last_check: None }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) if it cannot be read, if other users of the machine
    /// may read it, or if its content is no key. Messages never show the content.
    pub fn read(&mut self) -> Result<SealKeys> {
        self.read = stamp(&self.path);
        self.last_check = self.read;
        let named = |what: String| Error::invalid(format!("{}: {what}", self.path.display()));
        let text = text(&self.path).map_err(named)?;
        SealKeys::parse(&text).map_err(|error| named(error.to_string()))
    }

    /// True if the file differs from the one that was last read, and has not changed since the last check: a file
    /// that is still being written must not be read.
    pub fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let is_stable = std::mem::replace(&mut self.last_check, now) == now;
        is_stable && now != self.read
    }
}

fn text(path: &Path) -> Result<Zeroizing<String>, String> {
    const FIX: &str = "make one with `semel seal-key`, readable for this user only";
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("does not exist; {FIX}"),
        io::ErrorKind::PermissionDenied => {
            "may not be read by this user; change its owner or mode".to_owned()
        }
        io::ErrorKind::InvalidData => format!("is not text; {FIX}"),
        _ => format!("cannot be read: {error}; {FIX}"),
    };
    let file = File::open(path).map_err(unreadable)?;
    // The metadata of the open file: a link at this path may point elsewhere by now.
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.len() > KeyFile::MAX_BYTES {
        return Err(format!("has more than 64 KiB; {FIX}"));
    }
    if others_may_read(&metadata) {
        return Err(
            "is readable by other users of this machine; chmod 600 it (Kubernetes: defaultMode: 0440), and replace \
                    the keys if another user may have seen them"
                .to_owned(),
        );
    }
    // The full capacity from the start: the memory that a growing buffer leaves is not wiped.
    let mut text = Zeroizing::new(String::with_capacity(65 * 1024));
    file.take(KeyFile::MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(unix)]
fn others_may_read(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o007 != 0
}

#[cfg(not(unix))]
fn others_may_read(_: &Metadata) -> bool {
    false
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = path.metadata().ok()?;
    Some(FileStamp {
        modified: metadata.modified().ok(),
        length: metadata.len(),
        file: number(&metadata),
    })
}

#[cfg(unix)]
fn number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::seal_key::SealKey;

    fn write(path: &Path, text: &str, mode: u32) {
        let fresh = path.with_extension("new");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, path).unwrap();
    }

    #[test]
    fn a_missing_file_and_a_file_that_other_users_may_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let mut file = KeyFile::new(&path);
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("does not exist") && error.contains("semel seal-key"), "{error}");
        let line = SealKey::random("a").unwrap().line();
        for mode in [0o644, 0o604, 0o602] {
            write(&path, &line, mode);
            let error = file.read().unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        }
        for mode in [0o600, 0o400, 0o440] {
            write(&path, &line, mode);
            assert_eq!(file.read().unwrap().seals_with(), "a");
        }
        write(&path, "a = oops", 0o600);
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("keys: seal keys, line 1") && !error.contains("oops"), "{error}");
        fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("64 KiB"));
    }

    #[test]
    fn a_change_is_reported_once_and_only_when_the_file_is_no_longer_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        write(&path, &SealKey::random("a").unwrap().line(), 0o600);
        let mut file = KeyFile::new(&path);
        file.read().unwrap();
        assert!(!file.has_changed());
        write(&path, &SealKey::random("bb").unwrap().line(), 0o600);
        assert!(!file.has_changed(), "the file may still be written");
        assert!(file.has_changed());
        assert_eq!(file.read().unwrap().seals_with(), "bb");
        assert!(!file.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!file.has_changed() && file.has_changed());
        assert!(file.read().is_err());
        assert!(!file.has_changed(), "the change is reported once");
    }
}
