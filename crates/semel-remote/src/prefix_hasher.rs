//! A hasher for keys whose bytes are already random.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hashers of maps by key hash or nonce.
pub type BuildPrefixHasher = BuildHasherDefault<PrefixHasher>;

/// Uses the first eight bytes as the hash.
#[derive(Debug, Default)]
pub struct PrefixHasher(u64);

impl Hasher for PrefixHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }
}
