//! A hasher of what is random already.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps by key hash or nonce.
pub(crate) type ByRandom = BuildHasherDefault<FirstBytes>;

/// Takes the first bytes for a hash.
#[derive(Default)]
pub(crate) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }
}
