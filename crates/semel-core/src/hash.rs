//! Every hash of semel: of keys, fingerprints, principals and downstream keys.
//!
//! All of them are BLAKE3 over a purpose and length-prefixed parts, so that no two different inputs are hashed as the
//! same bytes. With a [`HashSecret`] they are keyed: a reader of a leaked store cannot guess keys or payloads offline.

use std::{fmt, sync::OnceLock};

/// Keys the hashes of one deployment. All nodes on a shared store must hold the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct HashSecret([u8; 32]);

impl HashSecret {
    /// Shorter secrets are refused by [`HashSecret::from_bytes`].
    pub const MIN_BYTES: usize = 16;

    /// A new secret, for stores that one process owns.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A secret that lasts as long as the process.
    pub(crate) fn of_process() -> &'static Self {
        static SECRET: OnceLock<HashSecret> = OnceLock::new();
        SECRET.get_or_init(Self::random)
    }

    /// A secret from configuration, of any length from [`HashSecret::MIN_BYTES`] on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is too short to be one.
    pub fn from_bytes(bytes: &[u8]) -> crate::Result<Self> {
        if bytes.len() < Self::MIN_BYTES {
            let (got, min) = (bytes.len(), Self::MIN_BYTES);
            return Err(crate::Error::invalid(format!(
                "hash secret has {got} bytes; give at least {min} random ones"
            )));
        }
        Ok(Self(blake3::derive_key("semel v1 hash secret", bytes)))
    }

    /// A value that differs between secrets and does not reveal them, so that nodes on a shared store can see whether
    /// they have the same secret. `None` has a value too.
    #[must_use]
    pub fn check_value(secret: Option<&Self>) -> [u8; 32] {
        hash(HashPurpose::SecretCheck, secret, &[])
    }
}

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSecret([redacted])")
    }
}

/// What a hash is for. Equal parts have different hashes for different purposes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashPurpose {
    Key,
    Fingerprint,
    Content,
    Part,
    Principal,
    Downstream,
    SecretCheck,
}

impl HashPurpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Key => b"semel v1 key",
            Self::Fingerprint => b"semel v1 fingerprint",
            Self::Content => b"semel v1 asked",
            Self::Part => b"semel v1 part",
            Self::Principal => b"semel v1 principal",
            Self::Downstream => b"semel v1 downstream",
            Self::SecretCheck => b"semel v1 secret check",
        }
    }
}

/// Hashes `parts` for `purpose`, keyed when there is a secret.
pub(crate) fn hash(purpose: HashPurpose, secret: Option<&HashSecret>, parts: &[&[u8]]) -> [u8; 32] {
    let length: usize = parts.iter().map(|part| PREFIX + part.len()).sum();
    if PREFIX + purpose.label().len() + length <= ONE_CHUNK {
        return hash_one_chunk(purpose, secret, parts);
    }
    let mut hasher = match secret {
        Some(secret) => blake3::Hasher::new_keyed(&secret.0),
        None => blake3::Hasher::new(),
    };
    for part in std::iter::once(&purpose.label()).chain(parts) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// Bytes of the length before each part.
const PREFIX: usize = size_of::<u64>();

/// Up to one chunk of BLAKE3, hashing one contiguous buffer is faster and gives the same hash.
const ONE_CHUNK: usize = 1024;

fn hash_one_chunk(purpose: HashPurpose, secret: Option<&HashSecret>, parts: &[&[u8]]) -> [u8; 32] {
    let (mut input, mut end) = ([0; ONE_CHUNK], 0);
    let mut write = |bytes: &[u8]| {
        input[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    for part in std::iter::once(&purpose.label()).chain(parts) {
        write(&(part.len() as u64).to_le_bytes());
        write(part);
    }
    let digest = match secret {
        Some(secret) => blake3::keyed_hash(&secret.0, &input[..end]),
        None => blake3::hash(&input[..end]),
    };
    *digest.as_bytes()
}

/// Writes bytes as lower-case hex.
pub(crate) fn write_hex(f: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().try_for_each(|byte| {
        f.write_char(digit(byte >> 4))?;
        f.write_char(digit(byte & 15))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_parts_never_give_the_same_hash() {
        let one = hash(HashPurpose::Key, None, &[b"ab", b"c"]);
        let other = hash(HashPurpose::Key, None, &[b"a", b"bc"]);
        assert_ne!(one, other);
    }

    #[test]
    fn both_ways_of_hashing_give_the_same_hash() {
        let hashed_in_parts = |secret: Option<&HashSecret>, parts: &[&[u8]]| {
            let mut hasher = match secret {
                Some(secret) => blake3::Hasher::new_keyed(&secret.0),
                None => blake3::Hasher::new(),
            };
            for part in std::iter::once(&HashPurpose::Key.label()).chain(parts) {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
            }
            *hasher.finalize().as_bytes()
        };
        let secret = HashSecret::random();
        for length in [0, 1, 63, 64, 900, 985, 986, 987, 988, 989, 990, 1023, 1024, 1025, 5000] {
            let part = vec![7; length];
            for secret in [None, Some(&secret)] {
                let parts: &[&[u8]] = &[&part, b"end"];
                let hashed = hash(HashPurpose::Key, secret, parts);
                assert_eq!(hashed, hashed_in_parts(secret, parts), "{length}");
            }
        }
    }

    #[test]
    fn a_secret_and_a_purpose_each_change_the_hash() {
        let secret = HashSecret::random();
        let plain = hash(HashPurpose::Key, None, &[b"a"]);
        assert_ne!(plain, hash(HashPurpose::Key, Some(&secret), &[b"a"]));
        assert_ne!(plain, hash(HashPurpose::Content, None, &[b"a"]));
    }

    #[test]
    fn different_secrets_have_different_check_values() {
        let (one, other) = (HashSecret::random(), HashSecret::random());
        let values = [Some(&one), Some(&other), None].map(HashSecret::check_value);
        assert_eq!(values[0], HashSecret::check_value(Some(&one.clone())));
        assert!(values[0] != values[1] && values[1] != values[2] && values[0] != values[2]);
        assert!(values.iter().all(|value| *value != one.0 && *value != other.0));
    }

    #[test]
    fn a_short_secret_is_refused_and_never_printed() {
        assert!(HashSecret::from_bytes(b"short").is_err());
        let secret = HashSecret::from_bytes(b"0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "HashSecret([redacted])");
    }
}
