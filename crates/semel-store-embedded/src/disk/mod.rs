//! The operations that the store needs from a disk. Tests use a simulated disk that fails or loses power.

mod folder;

use std::{fmt, io, sync::Arc};

pub(crate) use folder::Folder;

/// A folder of files.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes a file that does not exist yet. It is there after a power cut only after [`Disk::sync`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, and replaces a file that has the new name. Durable after [`Disk::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file. Durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names of files durable.
    fn sync(&self) -> io::Result<()>;
    /// True when there is a file of this name. Needs no file descriptor: a process may have used up all of them.
    fn has(&self, name: &str) -> io::Result<bool>;
    /// A message with the fix, when the open folder was removed, moved or replaced. Fails when the check itself fails.
    /// Needs no file descriptor.
    fn lost(&self) -> io::Result<Option<String>>;
}

/// A file of a [`Disk`].
pub(crate) trait DiskFile: fmt::Debug + Send + Sync {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// As [`DiskFile::read_at`], but returns false instead of waiting for the disk.
    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool>;
    /// Writes all of `bytes` at `offset`. Durable after [`DiskFile::sync`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// False when the file has no name any more: its content is lost once it is closed.
    fn has_name(&self) -> io::Result<bool>;
}

/// Writes a small file under another name and renames it, so that a power cut leaves the old or the new content.
pub(crate) fn write_whole(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = format!("{name}.new");
    match disk.remove(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&draft)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&draft, name)?;
    disk.sync()
}
