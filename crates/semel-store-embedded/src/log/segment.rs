//! The header of a segment: the folder that it belongs to, its number, and the sequence of its first batch.

use bytes::{Buf, BufMut};
use semel_core::{Error, ErrorKind, Result};

/// Bytes before the first batch.
pub(super) const HEADER: usize = 64;

const MAGIC: &[u8; 8] = b"semellog";
const VERSION: u32 = 1;

/// Distinguishes the files of one folder from those of another.
pub(crate) type FolderId = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store: FolderId,
    pub(super) number: u32,
    /// Every batch of this segment begins with this salt.
    pub(super) salt: u64,
    /// The sequence of the first batch. A batch with this sequence in the segment before was never
    /// acknowledged.
    pub(super) first: u64,
    /// The file's length.
    pub(super) capacity: u64,
}

impl SegmentHeader {
    pub(super) fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut out = &mut bytes[..];
        out.put_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.number);
        out.put_slice(&self.store);
        out.put_u64(self.salt);
        out.put_u64(self.first);
        out.put_u64(self.capacity);
        let check = crc32fast::hash(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// `None` when the header was never written, or did not reach the disk as a whole.
    pub(super) fn read(bytes: &[u8; HEADER], name: &str) -> Result<Option<Self>> {
        let (mut input, check) = bytes.split_at(HEADER - 4);
        if crc32fast::hash(input).to_be_bytes() != check {
            return Ok(None);
        }
        let mut magic = [0; 8];
        input.copy_to_slice(&mut magic);
        let version = input.get_u32();
        if &magic != MAGIC || version > VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("embedded store: {name} was not written by this version; upgrade first"),
            ));
        }
        let number = input.get_u32();
        let mut store = [0; 16];
        input.copy_to_slice(&mut store);
        let (salt, first, capacity) = (input.get_u64(), input.get_u64(), input.get_u64());
        Ok(Some(Self { store, number, salt, first, capacity }))
    }
}

pub(crate) fn name_of(number: u32) -> String {
    format!("{number:08}.log")
}

/// The number in a segment's name.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    (name_of(number) == name).then_some(number)
}
