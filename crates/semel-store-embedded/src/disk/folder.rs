//! A real folder, locked by one process.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use semel_core::{Error, ErrorKind, Result};

use super::{Disk, DiskFile};
use crate::{identity::refuse_foreign, log::missing_in_use};

const LOCK: &str = "lock";

/// A folder that no other process has open.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    directory: fs::File,
    /// The system unlocks it when the process ends, also by a kill.
    lock: fs::File,
}

impl Folder {
    /// Opens the folder, or makes it, and locks out every other process.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |what: &str, error: io::Error| {
            let subject = format!("embedded store: cannot {what} {}: {error}", path.display());
            Error::new(ErrorKind::Unavailable, subject).with_source(error)
        };
        make(path).map_err(|error| failed("make the folder", error))?;
        let directory = fs::File::open(path).map_err(|error| failed("open the folder", error))?;
        // Before the lock file is made: a folder that is not ours must stay unchanged.
        refuse_foreign(&names(path).map_err(|error| failed("list", error))?)?;
        let lock = private().create(true).truncate(false).open(path.join(LOCK));
        let lock = lock.map_err(|error| failed("open the lock in", error))?;
        let folder = Self { path: path.to_owned(), directory, lock };
        match folder.lock.try_lock() {
            Ok(()) => Ok(folder),
            Err(fs::TryLockError::WouldBlock) => Err(folder.in_use()),
            Err(fs::TryLockError::Error(error)) => Err(failed("lock", error)),
        }
    }

    /// The error when another process has the folder. A missing segment is the more important message.
    fn in_use(&self) -> Error {
        missing_in_use(self).err().unwrap_or_else(|| {
            Error::invalid(format!(
                "embedded store: {} is in use by another process; stop it, or choose another folder",
                self.path.display()
            ))
        })
    }

    /// The path of a file, if the folder is still the one that was opened. Another process may have opened the folder
    /// that replaced it.
    fn at(&self, name: &str) -> io::Result<PathBuf> {
        match self.lost()? {
            None => Ok(self.path.join(name)),
            Some(what) => Err(io::Error::other(what)),
        }
    }
}

/// True when this path names this file.
fn leads_to(path: &Path, file: &fs::File) -> io::Result<bool> {
    let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match found(path)? {
        Some(found) => Ok(of(found) == of(file.metadata()?)),
        None => Ok(false),
    }
}

/// The metadata of the file at this path; `None` when there is no file.
fn found(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes the folder for its owner alone, and its name durable.
fn make(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let synced = fs::File::open(parent.unwrap_or(Path::new("."))).and_then(|it| it.sync_all());
    match made {
        // The sync repeats what an interrupted first opening may have left out. It may fail: the parent can belong to
        // another user.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => synced,
    }
}

/// The names of all files but the lock.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(path)?;
    let names = names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| name.as_ref().map_or(true, |name| name != LOCK)).collect()
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        names(&self.path)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(private().open(self.at(name)?)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(private().create_new(true).open(self.at(name)?)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from)?, self.at(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn has(&self, name: &str) -> io::Result<bool> {
        Ok(found(&self.path.join(name))?.is_some())
    }

    fn lost(&self) -> io::Result<Option<String>> {
        let (path, lock) = (&self.path, self.path.join(LOCK));
        let what = match leads_to(path, &self.directory)? {
            false => path,
            true if leads_to(&lock, &self.lock)? => return Ok(None),
            true => &lock,
        };
        Ok(Some(format!(
            "{} was removed or replaced while it was in use; put it back, or stop the process and restore the \
             folder from a backup (keys recorded since that backup run again)",
            what.display()
        )))
    }
}

impl DiskFile for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let wanted = buffer.len();
        let mut buffers = [io::IoSliceMut::new(buffer)];
        match preadv2(self, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == wanted),
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_at_once(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }
}
