//! Short digests of the parts of a request, kept beside its fingerprint.
//!
//! A fingerprint says *that* two requests differ. These digests say *where*: the method, the path, a
//! header. A record keeps them behind the caller's id in its labels, because a store of an earlier
//! version reads and writes that text without looking into it.
//!
//! Like the fingerprint they are keyed by the hash secret. Without a secret, a reader of the store could guess the
//! value of a part that has few possible values, such as an account number in a path. So only one byte of each digest
//! is kept then: 1 in 256 values shares it, and it still shows all but 1 in 256 differences.

use std::fmt;

use crate::{
    Fingerprint,
    hash::{HashPurpose, HashSecret, hash, write_hex},
};

/// Bytes of one digest.
const WIDTH: usize = 3;

/// Digests of up to [`PartDigests::MAX`] parts of a request, by position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PartDigests([[u8; WIDTH]; Self::MAX]);

impl PartDigests {
    /// The largest number of parts that have a digest.
    pub const MAX: usize = 7;

    /// Digests of these parts. Parts beyond [`PartDigests::MAX`] are left out.
    pub(crate) fn of(parts: &[&[u8]], secret: Option<&HashSecret>) -> Self {
        let width = if secret.is_some() { WIDTH } else { 1 };
        let mut digests = [[0; WIDTH]; Self::MAX];
        for ((digest, part), position) in digests.iter_mut().zip(parts).zip(0u8..) {
            // Most parts of most requests are empty, so an empty part costs no hash.
            if !part.is_empty() {
                let hash = hash(HashPurpose::Part, secret, &[&[position], part]);
                digest[..width].copy_from_slice(&hash[..width]);
            }
        }
        Self(digests)
    }

    /// The positions at which two requests differ.
    pub fn differing(&self, other: &Self) -> impl Iterator<Item = usize> {
        let pairs = self.0.into_iter().zip(other.0);
        pairs.enumerate().filter(|(_, (one, other))| one != other).map(|(position, _)| position)
    }
}

impl fmt::Debug for PartDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartDigests([redacted])")
    }
}

/// Digests together with the fingerprint that they belong to.
///
/// Labels are written once, by the first claim. A key that was released without effect may then be
/// claimed with another request, and the digests of the first one must not be taken for those of the
/// second: so they carry the first bytes of their fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedParts {
    fingerprint: [u8; WIDTH],
    digests: PartDigests,
}

impl RecordedParts {
    /// Bytes of the text.
    const TEXT: usize = 2 * WIDTH * (1 + PartDigests::MAX);
    /// Separates the id from the text. It occurs in no id, since an id has no control characters.
    const SEPARATOR: char = '\u{1f}';

    /// `fingerprint` is the sealed one, as the record has it.
    pub(crate) fn new(fingerprint: &Fingerprint, digests: &PartDigests) -> Self {
        Self { fingerprint: first_bytes(fingerprint.as_bytes()), digests: *digests }
    }

    /// The digests, if they belong to the request that the record was made for.
    pub(crate) fn of(&self, fingerprint: &Fingerprint) -> Option<PartDigests> {
        (self.fingerprint == first_bytes(fingerprint.as_bytes())).then_some(self.digests)
    }

    /// The text that follows an id in labels.
    pub(crate) fn suffix(&self) -> String {
        let mut text = String::with_capacity(Self::SEPARATOR.len_utf8() + Self::TEXT);
        text.push(Self::SEPARATOR);
        let digests = self.digests.0.iter().flatten().copied();
        let bytes: Vec<u8> = self.fingerprint.into_iter().chain(digests).collect();
        write_hex(&mut text, &bytes).expect("writing to a String cannot fail");
        text
    }

    /// Splits what labels hold into the id and the parts behind it.
    pub(crate) fn split(stored: &str) -> (&str, Option<Self>) {
        let Some((id, text)) = stored.rsplit_once(Self::SEPARATOR) else { return (stored, None) };
        match Self::parse(text) {
            Some(parts) => (id, Some(parts)),
            None => (stored, None),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::TEXT || !text.is_ascii() {
            return None;
        }
        let mut bytes =
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
        let mut next = || {
            let mut digest = [0; WIDTH];
            for byte in &mut digest {
                *byte = bytes.next()?.ok()?;
            }
            Some(digest)
        };
        let fingerprint = next()?;
        let mut digests = [[0; WIDTH]; PartDigests::MAX];
        for digest in &mut digests {
            *digest = next()?;
        }
        Some(Self { fingerprint, digests: PartDigests(digests) })
    }
}

fn first_bytes(hash: &[u8; 32]) -> [u8; WIDTH] {
    [hash[0], hash[1], hash[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(parts: &[&str]) -> PartDigests {
        PartDigests::of(&parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>(), None)
    }

    #[test]
    fn parts_that_differ_are_named_by_their_position() {
        let one = digests(&["POST", "/orders/1", "", "application/json"]);
        let other = digests(&["POST", "/orders/2", "", "text/plain"]);
        assert_eq!(one.differing(&other).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(one.differing(&one).count(), 0);
    }

    #[test]
    fn an_equal_value_at_another_position_has_another_digest() {
        let (one, other) = (digests(&["a", ""]), digests(&["", "a"]));
        assert_eq!(one.differing(&other).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn without_the_secret_a_value_cannot_be_guessed() {
        let secret = HashSecret::from_bytes(&[7; 32]).unwrap();
        let keyed = PartDigests::of(&[b"/orders/1"], Some(&secret));
        let plain = digests(&["/orders/1"]);
        assert_ne!(keyed, plain);
        assert_eq!(plain.0[0][1..], [0, 0], "more than one byte of a digest that is not keyed");
    }

    #[test]
    fn digests_come_back_from_the_text_behind_an_id() {
        let fingerprint = Fingerprint::of_bytes(b"whole");
        let parts = RecordedParts::new(&fingerprint, &digests(&["POST", "/orders/1"]));
        let stored = format!("order-42{}", parts.suffix());
        let (id, read) = RecordedParts::split(&stored);
        assert_eq!((id, read), ("order-42", Some(parts)));
        assert!(read.unwrap().of(&fingerprint).is_some());
        assert!(read.unwrap().of(&Fingerprint::of_bytes(b"another")).is_none());
    }

    #[test]
    fn an_id_without_digests_stays_whole() {
        let long = format!("a\u{1f}{}", "ö".repeat(24));
        for id in ["", "order-42", "a\u{1f}", "a\u{1f}beef", &long] {
            assert_eq!(RecordedParts::split(id), (id, None), "{id:?}");
        }
    }
}
