//! The format of sealed bytes: sealing and opening.
//!
//! | bytes | |
//! |---|---|
//! | 1 | format version |
//! | 1, then as many | the name of the key |
//! | 24 | nonce, random |
//! | the rest | XChaCha20-Poly1305: text and tag |
//!
//! The tag also authenticates the record's key, the sealed part and the name of the seal key, so that bytes of
//! another record or part do not open here.

use std::fmt;

use chacha20poly1305::{AeadInOut, Tag, XNonce};
use semel_core::{KeyHash, Result};

use crate::{
    error::{damaged, no_key, not_opened, too_new},
    seal_key::{SealKey, is_id},
    seal_keys::SealKeys,
};

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const DOMAIN: &[u8] = b"semel sealed v1";

/// The most bytes that sealing adds.
pub(crate) const OVERHEAD: usize = 2 + SealKey::MAX_ID_BYTES + NONCE_BYTES + TAG_BYTES;

/// The part of a record that is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedPart {
    Outcome,
    Labels,
}

impl SealedPart {
    const fn code(self) -> u8 {
        match self {
            Self::Outcome => 1,
            Self::Labels => 2,
        }
    }
}

impl fmt::Display for SealedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outcome => "outcome",
            Self::Labels => "labels",
        })
    }
}

/// Seals the concatenated parts for the record of `key`.
pub(crate) fn seal(with: &SealKey, part: SealedPart, key: &KeyHash, parts: &[&[u8]]) -> Vec<u8> {
    let nonce: [u8; NONCE_BYTES] = rand::random();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(OVERHEAD + length);
    out.push(VERSION);
    out.push(u8::try_from(with.id().len()).expect("a name has at most 64 bytes"));
    out.extend_from_slice(with.id().as_bytes());
    out.extend_from_slice(&nonce);
    let head = out.len();
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let bound = bound(part, key, with.id());
    let text = out[head..].as_mut();
    let tag = with.cipher().encrypt_inout_detached(&nonce.into(), &bound, text.into());
    // It fails only for more than 256 GiB, and no store accepts an outcome of a thousandth of that.
    let tag = tag.expect("an outcome is far below the cipher's limit");
    out.extend_from_slice(&tag);
    out
}

/// Opens bytes that [`seal`] made for the record of `key`.
pub(crate) fn open(
    keys: &SealKeys,
    part: SealedPart,
    key: &KeyHash,
    sealed: &[u8],
) -> Result<Vec<u8>> {
    let SealedBytes { version, id, nonce, text, tag } =
        SealedBytes::of(sealed).ok_or_else(|| damaged(key, part))?;
    if version > VERSION {
        return Err(too_new(key, part, version));
    }
    let with = keys.get(id).ok_or_else(|| no_key(key, part, id, keys))?;
    let mut plain = text.to_vec();
    let bound = bound(part, key, id);
    let opened =
        with.cipher().decrypt_inout_detached(nonce, &bound, plain.as_mut_slice().into(), tag);
    opened.map_err(|_| not_opened(key, part, id))?;
    Ok(plain)
}

/// The name of the key that these bytes say they are sealed with.
pub(crate) fn id_of(sealed: &[u8]) -> Option<&str> {
    SealedBytes::of(sealed).map(|parts| parts.id)
}

struct SealedBytes<'a> {
    version: u8,
    id: &'a str,
    nonce: &'a XNonce,
    text: &'a [u8],
    tag: &'a Tag,
}

impl<'a> SealedBytes<'a> {
    fn of(sealed: &'a [u8]) -> Option<Self> {
        let (&[version, length], rest) = sealed.split_first_chunk()?;
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        let id = str::from_utf8(id).ok().filter(|id| version > 0 && is_id(id))?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (text, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        Some(Self { version, id, nonce: nonce.into(), text, tag: tag.into() })
    }
}

/// The associated data that the tag authenticates besides the text. All parts before the name have a fixed length.
fn bound(part: SealedPart, key: &KeyHash, id: &str) -> Vec<u8> {
    [DOMAIN, &[VERSION, part.code()], key.as_bytes(), id.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use semel_core::ErrorKind;

    use super::*;

    fn keys(ids: &[&str]) -> SealKeys {
        let lines = ids.iter().map(|id| SealKey::random(id).unwrap().line().to_string());
        SealKeys::parse(&lines.collect::<Vec<_>>().join("\n")).unwrap()
    }

    fn record(byte: u8) -> KeyHash {
        KeyHash::from_bytes([byte; 32])
    }

    #[test]
    fn sealed_bytes_open_only_for_their_record_and_part() {
        let keys = keys(&["a", "b"]);
        let sealed = seal(keys.first(), SealedPart::Outcome, &record(1), &[b"can", b"ary"]);
        assert_eq!(id_of(&sealed), Some("a"));
        assert_eq!(open(&keys, SealedPart::Outcome, &record(1), &sealed).unwrap(), b"canary");
        assert!(!sealed.windows(6).any(|it| it == b"canary"));
        for (part, key) in [(SealedPart::Labels, record(1)), (SealedPart::Outcome, record(2))] {
            let error = open(&keys, part, &key, &sealed).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("moved here from another record"), "{error}");
        }
    }

    #[test]
    fn the_same_text_is_never_sealed_to_the_same_bytes() {
        let keys = keys(&["a"]);
        let sealed = || seal(keys.first(), SealedPart::Outcome, &record(1), &[b"text"]);
        assert_ne!(sealed(), sealed());
    }

    #[test]
    fn changed_or_cut_bytes_do_not_open() {
        let keys = keys(&["a"]);
        let sealed = seal(keys.first(), SealedPart::Outcome, &record(1), &[b"text"]);
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    open(&keys, SealedPart::Outcome, &record(1), &changed).is_err(),
                    "{at}, {bit}"
                );
            }
            assert!(open(&keys, SealedPart::Outcome, &record(1), &sealed[..at]).is_err(), "{at}");
            assert!(
                open(&keys, SealedPart::Outcome, &record(1), &sealed[at + 1..]).is_err(),
                "{at}"
            );
        }
    }

    #[test]
    fn the_error_for_a_missing_key_names_it_and_the_present_keys() {
        let (old, new) = (keys(&["old"]), keys(&["new", "newer"]));
        let sealed = seal(old.first(), SealedPart::Labels, &record(1), &[b"text"]);
        let error = open(&new, SealedPart::Labels, &record(1), &sealed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let message = error.to_string();
        assert!(
            message.contains("sealed with key old") && message.contains("(new, newer)"),
            "{message}"
        );
        assert!(message.contains("record 01010101: its labels"), "{message}");
    }

    #[test]
    fn another_key_of_the_same_name_does_not_open() {
        let sealed = seal(keys(&["a"]).first(), SealedPart::Outcome, &record(1), &[b"text"]);
        let error = open(&keys(&["a"]), SealedPart::Outcome, &record(1), &sealed).unwrap_err();
        assert!(error.to_string().contains("another key of that name"), "{error}");
    }

    #[test]
    fn a_newer_format_and_a_damaged_one_are_different_errors() {
        let keys = keys(&["a"]);
        let mut sealed = seal(keys.first(), SealedPart::Outcome, &record(1), &[b"text"]);
        sealed[0] = 2;
        let error = open(&keys, SealedPart::Outcome, &record(1), &sealed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        sealed[0] = 0;
        let error = open(&keys, SealedPart::Outcome, &record(1), &sealed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    /// Bytes of an independent implementation of the table above, so that a change of the format is noticed.
    #[test]
    fn bytes_of_the_first_format_open() {
        let text = "k = AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let keys = SealKeys::parse(text).unwrap();
        let nonce: Vec<u8> = (0x40..0x58).collect();
        let text_and_tag = [
            0xbf, 0x5c, 0x75, 0x04, 0x3e, 0x08, 0x80, 0x95, 0x9d, 0x17, 0x70, 0x1f, 0xbe, 0xf2,
            0x73, 0x88, 0x7d, 0x8a, 0x2c, 0xbc,
        ];
        let sealed = [&[1, 1, b'k'][..], &nonce, &text_and_tag].concat();
        assert_eq!(open(&keys, SealedPart::Outcome, &record(7), &sealed).unwrap(), b"kept");
    }
}
