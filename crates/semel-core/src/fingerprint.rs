//! The fingerprint: a hash of the request's content, so that a key cannot be reused for another request.

use std::fmt;

use serde::Serialize;

use crate::{
    Result, canonical,
    hash::{HashPurpose, HashSecret, hash},
};

/// A hash of a request's content. Two requests with one key must have the same fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Fingerprint of a value, by its JSON with sorted fields and exact numbers: the order of fields
    /// does not matter. A float that JSON does not have, such as NaN, counts as null.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the value has no JSON form, such as a
    /// map with keys that are not strings.
    ///
    /// ```
    /// # use semel_core::Fingerprint;
    /// # use serde_json::json;
    /// let one = Fingerprint::of(&json!({ "amount": 5, "to": "bob" }))?;
    /// let same = Fingerprint::of(&json!({ "to": "bob", "amount": 5 }))?;
    /// assert_eq!(one, same);
    /// # Ok::<(), semel_core::Error>(())
    /// ```
    pub fn of<T: Serialize + ?Sized>(content: &T) -> Result<Self> {
        canonical::to_vec(content).map(|json| Self::of_bytes(&json))
    }

    /// Fingerprint of raw bytes.
    #[must_use]
    pub fn of_bytes(content: &[u8]) -> Self {
        Self::of_parts(&[content])
    }

    /// Fingerprint of several parts in order; moving a byte from one part to the next changes it.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        Self(hash(HashPurpose::Content, None, parts))
    }

    /// The form a store keeps: keyed, so that a small payload cannot be guessed from it.
    #[must_use]
    pub fn sealed(&self, secret: Option<&HashSecret>) -> Self {
        Self(hash(HashPurpose::Fingerprint, secret, &[&self.0]))
    }

    /// A fingerprint read back from a store.
    #[must_use]
    pub const fn from_stored(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes a store keeps.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ids_beyond_the_precision_of_a_double_have_two_fingerprints() {
        let (one, next) = (9_007_199_254_740_992u64, 9_007_199_254_740_993u64);
        assert_ne!(Fingerprint::of(&one).unwrap(), Fingerprint::of(&next).unwrap());
    }
}
