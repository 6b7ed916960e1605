//! The names of keys, indexes and the channel in Redis.

use std::ops::Deref;

use semel_core::{Error, KeyHash, Result, StoreId};

/// Keys and channel of one store, all below one prefix.
#[derive(Clone, Debug)]
pub(crate) struct RedisNames {
    prefix: String,
    replicas: String,
    pub(crate) channel: String,
    /// The index of claims in hold mode, by the time of their next check.
    pub(crate) held: String,
    /// The index of Unknown and Dead keys, by the time when they became so.
    pub(crate) stuck: String,
    pub(crate) leader: String,
    pub(crate) secret_check: String,
    /// The store whose replicas a front has.
    pub(crate) front_of: String,
}

/// A key, without an allocation: that would cost as much as the rest of building it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisKey {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl RedisKey {
    /// The longest key is that of a replica.
    const MAX: usize = RedisNames::MAX_PREFIX + ":r:".len() + 16 + ":".len() + 32;

    fn new(prefix: &str, key: &KeyHash) -> Self {
        let (mut bytes, length) = ([0; Self::MAX], prefix.len() + key.as_bytes().len());
        bytes[..prefix.len()].copy_from_slice(prefix.as_bytes());
        bytes[prefix.len()..length].copy_from_slice(key.as_bytes());
        Self { bytes, length }
    }
}

impl Deref for RedisKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl RedisNames {
    pub(crate) const MAX_PREFIX: usize = 64;

    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"_-.:".contains(&c);
        if prefix.is_empty() || prefix.len() > Self::MAX_PREFIX || !prefix.bytes().all(fits) {
            return Err(Error::invalid(format!(
                "redis: the prefix must be 1 to {} characters out of a-z, A-Z, 0-9 and _-.:",
                Self::MAX_PREFIX
            )));
        }
        let name = |what: &str| format!("{prefix}:{what}");
        Ok(Self {
            channel: name("changed"),
            held: name("held"),
            stuck: name("stuck"),
            leader: name("leader"),
            secret_check: name("hash-secret-check"),
            front_of: name("front-of"),
            prefix: name("k:"),
            replicas: name("r:"),
        })
    }

    /// The names for replicas of this store's records. Fronts of different stores share no key.
    pub(crate) fn for_front(mut self, store: Option<StoreId>) -> Self {
        for byte in store.iter().flat_map(|store| &store.as_bytes()[..8]) {
            self.replicas.push_str(&format!("{byte:02x}"));
        }
        self.replicas.push(':');
        self
    }

    /// The key of a record: prefix and hash in bytes.
    pub(crate) fn record(&self, key: &KeyHash) -> RedisKey {
        RedisKey::new(&self.prefix, key)
    }

    /// The key of a replica.
    pub(crate) fn replica(&self, key: &KeyHash) -> RedisKey {
        RedisKey::new(&self.replicas, key)
    }

    /// The key hash of a record's key; `None` for other keys.
    pub(crate) fn hash_of(&self, name: &[u8]) -> Option<KeyHash> {
        let hash = name.strip_prefix(self.prefix.as_bytes())?;
        Some(KeyHash::from_bytes(hash.try_into().ok()?))
    }

    /// Matches the keys of all records.
    pub(crate) fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_fits_with_the_longest_prefix() {
        let prefix = "p".repeat(RedisNames::MAX_PREFIX);
        let names =
            RedisNames::new(&prefix).unwrap().for_front(Some(StoreId::from_bytes([0xab; 16])));
        let hash = KeyHash::from_bytes([7; 32]);
        assert_eq!(names.replica(&hash).len(), RedisKey::MAX);
        assert!(names.record(&hash).starts_with(prefix.as_bytes()));
    }

    #[test]
    fn the_key_of_a_record_contains_its_hash() {
        let (names, hash) = (RedisNames::new("semel").unwrap(), KeyHash::from_bytes([9; 32]));
        assert_eq!(names.hash_of(&names.record(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.replica(&hash)), None, "a replica is no record");
        assert_eq!(names.hash_of(b"semel:held"), None);
        assert_eq!(names.hash_of(b"other:k:"), None);
    }

    #[test]
    fn a_prefix_that_is_a_pattern_or_a_hash_tag_is_refused() {
        for bad in ["", "a*", "{tag}", "a b", &"x".repeat(65)] {
            assert!(RedisNames::new(bad).is_err(), "{bad}");
        }
    }
}
