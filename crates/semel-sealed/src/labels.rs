//! Seals labels: the sealed labels have one sealed text in place of the caller's id.

use base64ct::{Base64Unpadded, Encoding};
use semel_core::{KeyHash, Labels, Result};

use crate::{
    error::damaged,
    seal::{self, SealedPart},
    seal_key::SealKey,
    seal_keys::SealKeys,
};

/// The namespace of sealed labels. No service may use this name.
pub(crate) const NAMESPACE: &str = "semel:sealed";

/// The most bytes that are sealed: labels are text of at most 64 KiB, and base64 makes four bytes of three.
const MAX_BYTES: usize = 48_000;

pub(crate) fn seal(with: &SealKey, key: &KeyHash, labels: &Labels) -> Labels {
    let parts =
        cut([labels.namespace(), labels.principal(), labels.operation(), labels.stored_id()]);
    let lengths = parts.map(|part| u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
    let written: Vec<&[u8]> = lengths
        .iter()
        .zip(parts)
        .flat_map(|(length, part)| [&length[..], part.as_bytes()])
        .collect();
    let sealed = seal::seal(with, SealedPart::Labels, key, &written);
    Labels::new(NAMESPACE, "", "", &Base64Unpadded::encode_string(&sealed))
}

pub(crate) fn open(keys: &SealKeys, key: &KeyHash, labels: &Labels) -> Result<Labels> {
    let damaged = || damaged(key, SealedPart::Labels);
    let sealed = bytes(labels).ok_or_else(damaged)?;
    let plain = seal::open(keys, SealedPart::Labels, key, &sealed)?;
    let mut rest = &plain[..];
    let mut next = || {
        let (length, behind) = rest.split_first_chunk()?;
        let (part, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = behind;
        str::from_utf8(part).ok()
    };
    let parts = [next(), next(), next(), next()];
    match parts {
        [Some(namespace), Some(principal), Some(operation), Some(id)] if rest.is_empty() => {
            Ok(Labels::new(namespace, principal, operation, id))
        }
        _ => Err(damaged()),
    }
}

pub(crate) fn are_sealed(labels: &Labels) -> bool {
    labels.namespace() == NAMESPACE
}

/// The sealed bytes.
pub(crate) fn bytes(labels: &Labels) -> Option<Vec<u8>> {
    Base64Unpadded::decode_vec(labels.id()).ok()
}

/// Cuts parts that are longer than a scope accepts, as labels do themselves.
fn cut(parts: [&str; 4]) -> [&str; 4] {
    if parts.iter().map(|part| part.len()).sum::<usize>() <= MAX_BYTES {
        return parts;
    }
    parts.map(|part| &part[..part.floor_char_boundary(MAX_BYTES / 4)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash::from_bytes([1; 32]);

    fn keys() -> SealKeys {
        SealKeys::parse(&SealKey::random(&"k".repeat(64)).unwrap().line()).unwrap()
    }

    #[test]
    fn labels_open_again_and_are_not_readable() {
        let keys = keys();
        for labels in [
            Labels::new("payments", "", "POST /orders", "ördre-42"),
            Labels::new("", "", "", ""),
            Labels::new("a\0b", "canary", "canary", "canary"),
            Labels::new("ns", &"x".repeat(40_000), "op", "id"),
        ] {
            let sealed = seal(keys.first(), &KEY, &labels);
            assert!(are_sealed(&sealed) && !are_sealed(&labels));
            assert!(!sealed.id().contains("canary"));
            assert_eq!(open(&keys, &KEY, &sealed).unwrap(), labels);
        }
    }

    #[test]
    fn overlong_labels_are_cut_and_still_open() {
        let keys = keys();
        let labels = Labels::new("ns", &"ö".repeat(30_000), "op", "id");
        let opened = open(&keys, &KEY, &seal(keys.first(), &KEY, &labels)).unwrap();
        assert!(opened.principal().len() >= 11_000 && opened.principal().chars().all(|c| c == 'ö'));
        assert_eq!((opened.namespace(), opened.id()), ("ns", "id"));
    }
}
