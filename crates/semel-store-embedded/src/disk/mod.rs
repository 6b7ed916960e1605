//! The few things the store asks of a disk. Tests put a disk in between that fails, or loses power.

mod folder;

use std::{fmt, io, sync::Arc};

pub(crate) use folder::Folder;

/// A folder of files.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Makes a file that does not exist yet. It is there after a power cut only after [`Disk::sync`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, in place of whatever had it. Durable after [`Disk::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file. Durable after [`Disk::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names of files durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file of a [`Disk`].
pub(crate) trait File: fmt::Debug + Send + Sync {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// As [`File::read_at`], but false instead of waiting for the disk.
    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool>;
    /// Writes all of `bytes` at `offset`. Durable after [`File::sync`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything that was written durable.
    fn sync(&self) -> io::Result<()>;
}
