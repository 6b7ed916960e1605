//! The list of segments: a file with the highest segment number of this folder. Without it, a log whose newest segments
//! were removed would look like a shorter log.
//!
//! A segment's number is written here after its file name is durable and before its first batch. So a power cut leaves
//! no number without its file, and no batch in a file that recovery would not miss.

use std::io;

use semel_core::{Error, ErrorKind, Result};

use super::unsure;
use crate::disk::{Disk, write_whole};

/// A hidden file, so that versions that do not know it do not refuse it as foreign.
pub(super) const NAME: &str = ".segments";
const MAGIC: &[u8; 8] = b"semelseg";
const LENGTH: usize = 8 + 4 + 4;

/// The highest number so far; 0 before the first segment. `None` in a folder of a version without the list.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<u32>> {
    let mut bytes = [0; LENGTH];
    match disk.open(NAME).and_then(|file| file.read_at(&mut bytes, 0)) {
        Ok(()) => parse(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged()),
        Err(error) => Err(unsure("read the list of segments of", error)),
    }
}

/// Makes it durable that the folder has had a segment of this number.
pub(crate) fn write(disk: &dyn Disk, highest: u32) -> io::Result<()> {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&highest.to_be_bytes());
    let check = crc32fast::hash(&bytes[..12]).to_be_bytes();
    bytes[12..].copy_from_slice(&check);
    write_whole(disk, NAME, &bytes)
}

fn parse(bytes: &[u8; LENGTH]) -> Result<u32> {
    if &bytes[..8] != MAGIC || bytes[12..] != crc32fast::hash(&bytes[..12]).to_be_bytes() {
        return Err(damaged());
    }
    let mut highest = [0; 4];
    highest.copy_from_slice(&bytes[8..12]);
    Ok(u32::from_be_bytes(highest))
}

fn damaged() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "embedded store: the file {NAME:?} is not as it was written; delete it if you are certain that \
             no segment is missing, or restore the whole folder from a backup (keys recorded since that backup run \
             again)"
        ),
    )
}
