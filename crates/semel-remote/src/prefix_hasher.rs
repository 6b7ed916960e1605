//! A hasher of what is random already.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps by key hash or nonce.
pub type BuildPrefixHasher = BuildHasherDefault<PrefixHasher>;

/// Takes the first bytes for a hash.
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
