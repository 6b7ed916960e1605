//! The format of batches in a segment.
//!
//! ```text
//! segment: header, batch, batch, …, zeros
//! batch:   salt 8, sequence 8, at 8, length 4, entries 4, sum 4, check 4, then the entries
//! entry:   crc 4, length 4, kind 1, body
//! ```
//!
//! A batch is valid as a whole or not at all: `check` covers its head, `sum` the checksums of its entries. Each segment
//! has its own random salt, so that old bytes of the disk, or bytes of a caller that knows the format, never pass for a
//! batch. Numbers are big-endian.

use bytes::{Buf, BufMut, BytesMut};
use semel_core::{KeyHash, Record, Timestamp, codec};

/// Bytes of a batch before its entries.
pub(super) const HEAD: usize = 40;
const ENTRY_HEAD: usize = 9;

mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const DELETE: u8 = 2;
    pub(super) const TRIM: u8 = 3;
}

/// One change in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameEntry<'a> {
    /// The new record of a key, encoded by [`codec`].
    Put(&'a [u8]),
    /// The key has no record any more.
    Delete(KeyHash),
    /// Segments before this one are not needed any more.
    Trim(u32),
}

/// The position of a body, first in its batch, then in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl Extent {
    /// The position in the segment, for a batch that begins at `base`.
    pub(crate) const fn behind(self, base: u32) -> Self {
        Self { offset: self.offset + base, length: self.length }
    }
}

/// A batch that is being built.
#[derive(Debug)]
pub(crate) struct BatchDraft {
    bytes: BytesMut,
    entries: u32,
    sum: crc32fast::Hasher,
}

impl BatchDraft {
    pub(crate) fn new() -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_bytes(0, HEAD);
        Self { bytes, entries: 0, sum: crc32fast::Hasher::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.entries = 0;
        self.sum.reset();
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn put(&mut self, record: &Record) -> Extent {
        self.entry(kind::PUT, |bytes| codec::encode_into(record, bytes))
    }

    /// [`BatchDraft::put`] for a record that is bytes already.
    pub(crate) fn put_encoded(&mut self, record: &[u8]) -> Extent {
        self.entry(kind::PUT, |bytes| bytes.put_slice(record))
    }

    pub(crate) fn delete(&mut self, key: &KeyHash) {
        self.entry(kind::DELETE, |bytes| bytes.put_slice(key.as_bytes()));
    }

    pub(super) fn trim(&mut self, first: u32) {
        self.entry(kind::TRIM, |bytes| bytes.put_u32(first));
    }

    fn entry(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) -> Extent {
        let start = self.bytes.len();
        self.bytes.put_bytes(0, ENTRY_HEAD - 1);
        self.bytes.put_u8(kind);
        body(&mut self.bytes);
        let offset = start + ENTRY_HEAD;
        let length = narrow(self.bytes.len() - offset);
        self.bytes[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&self.bytes[start + 4..]).to_be_bytes();
        self.bytes[start..start + 4].copy_from_slice(&crc);
        self.sum.update(&crc);
        self.entries += 1;
        Extent { offset: narrow(offset), length }
    }

    /// Fills in the head, and returns the bytes of the batch.
    pub(super) fn seal(&mut self, salt: u64, sequence: u64, at: Timestamp) -> &[u8] {
        let length = narrow(self.bytes.len() - HEAD);
        let mut head = &mut self.bytes[..HEAD];
        head.put_u64(salt);
        head.put_u64(sequence);
        head.put_u64(at.as_millis());
        head.put_u32(length);
        head.put_u32(self.entries);
        head.put_u32(self.sum.clone().finalize());
        let check = crc32fast::hash(&self.bytes[..HEAD - 4]);
        self.bytes[HEAD - 4..HEAD].copy_from_slice(&check.to_be_bytes());
        &self.bytes
    }
}

/// The head of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchHead {
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    pub(super) length: usize,
    entries: u32,
    sum: u32,
}

impl BatchHead {
    /// Reads a head at the start of `bytes`, if there is one with this salt.
    pub(super) fn read(bytes: &[u8], salt: u64) -> Option<Self> {
        let (mut head, rest) = bytes.split_at_checked(HEAD)?;
        let check = crc32fast::hash(&head[..HEAD - 4]);
        let found = head.get_u64();
        let (sequence, at) = (head.get_u64(), Timestamp::from_millis(head.get_u64()));
        let (length, entries, sum) = (head.get_u32() as usize, head.get_u32(), head.get_u32());
        let whole = found == salt && head.get_u32() == check && length <= rest.len();
        whole.then_some(Self { sequence, at, length, entries, sum })
    }

    /// The entries of the batch at the start of `bytes` and the positions of their bodies, if all checksums match.
    pub(super) fn entries<'a>(&self, bytes: &'a [u8]) -> Option<Vec<(Extent, FrameEntry<'a>)>> {
        let mut sum = crc32fast::Hasher::new();
        let mut entries = Vec::with_capacity(self.entries as usize);
        let (mut at, end) = (HEAD, HEAD + self.length);
        while at < end {
            let (crc, extent, entry) = read_entry(&bytes[..end], at)?;
            sum.update(&crc.to_be_bytes());
            at = (extent.offset + extent.length) as usize;
            entries.push((extent, entry));
        }
        let whole = entries.len() == self.entries as usize && sum.finalize() == self.sum;
        whole.then_some(entries)
    }
}

fn read_entry(bytes: &[u8], start: usize) -> Option<(u32, Extent, FrameEntry<'_>)> {
    let mut head = bytes.get(start..start + ENTRY_HEAD)?;
    let (crc, length, kind) = (head.get_u32(), head.get_u32(), head.get_u8());
    let offset = start + ENTRY_HEAD;
    let mut body = bytes.get(offset..offset.checked_add(length as usize)?)?;
    if crc32fast::hash(&bytes[start + 4..offset + length as usize]) != crc {
        return None;
    }
    let entry = match kind {
        kind::PUT => FrameEntry::Put(body),
        kind::DELETE => FrameEntry::Delete(KeyHash::from_bytes(body.try_into().ok()?)),
        kind::TRIM if body.len() == 4 => FrameEntry::Trim(body.get_u32()),
        _ => return None,
    };
    Some((crc, Extent { offset: narrow(offset), length }, entry))
}

/// Checks a single entry that is read without its batch, including the `ENTRY_HEAD` bytes before its body.
pub(super) fn is_intact(entry: &[u8]) -> bool {
    read_entry(entry, 0)
        .is_some_and(|(_, extent, _)| (extent.offset + extent.length) as usize == entry.len())
}

/// The offset of the body in an entry.
pub(super) const BODY: usize = ENTRY_HEAD;

/// Segments are far smaller than 4 GiB.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).expect("a segment is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u8) -> Vec<u8> {
        let mut draft = BatchDraft::new();
        draft.delete(&KeyHash::from_bytes([first; 32]));
        draft.delete(&KeyHash::from_bytes([first + 1; 32]));
        draft.seal(7, 1, Timestamp::default()).to_vec()
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let bytes = batch(1);
        let head = BatchHead::read(&bytes, 7).unwrap();
        assert_eq!((head.sequence, HEAD + head.length), (1, bytes.len()));
        let entries: Vec<_> = head.entries(&bytes).unwrap().into_iter().map(|(_, e)| e).collect();
        assert_eq!(entries, [1, 2].map(|n| FrameEntry::Delete(KeyHash::from_bytes([n; 32]))));
        assert!(BatchHead::read(&bytes, 8).is_none(), "another segment's");
    }

    #[test]
    fn sound_entries_of_two_batches_do_not_make_one() {
        let (mut one, other) = (batch(1), batch(3));
        let second = HEAD + (one.len() - HEAD) / 2;
        one[second..].copy_from_slice(&other[second..]);
        let head = BatchHead::read(&one, 7).unwrap();
        assert!(head.entries(&one).is_none());
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let bytes = batch(1);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            let head = BatchHead::read(&flipped, 7);
            assert!(head.is_none_or(|head| head.entries(&flipped).is_none()), "at {at}");
        }
    }
}
