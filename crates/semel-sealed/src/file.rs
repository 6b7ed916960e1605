//! Keys in a file that changes while they are used.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use semel_core::{Error, Result};
use zeroize::Zeroizing;

use crate::keys::Keys;

/// A file with keys. It is read again when somebody says so, or when it has changed and come to rest.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// What the file was when it was last read, or tried to be.
    read: Option<Stamp>,
    /// What it was at the last look.
    looked: Option<Stamp>,
}

/// Differs, with near certainty, when the content of the file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    file: u64,
}

impl KeyFile {
    /// The largest file that is read.
    pub const MAX_BYTES: u64 = 64 * 1024;

    /// The file at `path`, which is not read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: None, looked: None }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when it cannot be read, others on the machine
    /// may read it, or what stands there is no key. Messages never show what stands there.
    pub fn read(&mut self) -> Result<Keys> {
        self.read = stamp(&self.path);
        self.looked = self.read;
        let named = |what: String| Error::invalid(format!("{}: {what}", self.path.display()));
        let text = text(&self.path).map_err(named)?;
        Keys::parse(&text).map_err(|error| named(error.to_string()))
    }

    /// True when it is another file than was last read, and the same as at the last look: half a file is
    /// not read while somebody still writes it.
    pub fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let rests = std::mem::replace(&mut self.looked, now) == now;
        rests && now != self.read
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
    // Of the file that is open: a link may point elsewhere by now.
    let about = file.metadata().map_err(unreadable)?;
    if about.len() > KeyFile::MAX_BYTES {
        return Err(format!("has more than 64 KiB; {FIX}"));
    }
    if others_may_read(&about) {
        return Err(
            "may be read by everybody on this machine; chmod 600 it (Kubernetes: defaultMode: \
                    0440), and replace the keys if somebody may have seen them"
                .to_owned(),
        );
    }
    // Room for all of it from the start: what a growing buffer leaves behind is not wiped.
    let mut text = Zeroizing::new(String::with_capacity(65 * 1024));
    file.take(KeyFile::MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(unix)]
fn others_may_read(about: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    about.permissions().mode() & 0o007 != 0
}

#[cfg(not(unix))]
fn others_may_read(_: &Metadata) -> bool {
    false
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = path.metadata().ok()?;
    Some(Stamp { modified: about.modified().ok(), length: about.len(), file: number(&about) })
}

#[cfg(unix)]
fn number(about: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::key::SealKey;

    fn write(path: &Path, text: &str, mode: u32) {
        let fresh = path.with_extension("new");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, path).unwrap();
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_and_so_is_none() {
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
    fn a_change_is_seen_once_it_rests_and_once_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        write(&path, &SealKey::random("a").unwrap().line(), 0o600);
        let mut file = KeyFile::new(&path);
        file.read().unwrap();
        assert!(!file.has_changed());
        write(&path, &SealKey::random("bb").unwrap().line(), 0o600);
        assert!(!file.has_changed(), "somebody may still write it");
        assert!(file.has_changed());
        assert_eq!(file.read().unwrap().seals_with(), "bb");
        assert!(!file.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!file.has_changed() && file.has_changed());
        assert!(file.read().is_err());
        assert!(!file.has_changed(), "one word about it is enough");
    }
}
