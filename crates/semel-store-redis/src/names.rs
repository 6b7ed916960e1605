//! What things are called inside Redis.

use std::ops::Deref;

use semel_core::{Error, KeyHash, Result, StoreId};

/// Keys and channel of one store, all below one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
    copies: String,
    pub(crate) channel: String,
    /// Claims on hold by when to look at them.
    pub(crate) held: String,
    /// Keys that became Unknown or Dead, by when they did.
    pub(crate) stuck: String,
    pub(crate) leader: String,
    pub(crate) secret_check: String,
    /// Whose copies a front holds.
    pub(crate) front_of: String,
}

/// A key, in place: an allocation would cost as much as all the rest of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl Name {
    /// The longest is that of a copy.
    const MAX: usize = Names::MAX_PREFIX + ":r:".len() + 16 + ":".len() + 32;

    fn new(prefix: &str, key: &KeyHash) -> Self {
        let (mut bytes, length) = ([0; Self::MAX], prefix.len() + key.as_bytes().len());
        bytes[..prefix.len()].copy_from_slice(prefix.as_bytes());
        bytes[prefix.len()..length].copy_from_slice(key.as_bytes());
        Self { bytes, length }
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Names {
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
            copies: name("r:"),
        })
    }

    /// The same for copies of this store's records: two stores never meet each other's.
    pub(crate) fn of_front(mut self, store: Option<StoreId>) -> Self {
        for byte in store.iter().flat_map(|store| &store.as_bytes()[..8]) {
            self.copies.push_str(&format!("{byte:02x}"));
        }
        self.copies.push(':');
        self
    }

    /// The key of a record: short, and spelled as the hash itself.
    pub(crate) fn record(&self, key: &KeyHash) -> Name {
        Name::new(&self.prefix, key)
    }

    /// The key of a copy of another store's record.
    pub(crate) fn copy(&self, key: &KeyHash) -> Name {
        Name::new(&self.copies, key)
    }

    /// Whose record a key is, if it is one.
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
    fn the_longest_prefix_leaves_room_for_every_name() {
        let prefix = "p".repeat(Names::MAX_PREFIX);
        let names = Names::new(&prefix).unwrap().of_front(Some(StoreId::from_bytes([0xab; 16])));
        let hash = KeyHash::from_bytes([7; 32]);
        assert_eq!(names.copy(&hash).len(), Name::MAX);
        assert!(names.record(&hash).starts_with(prefix.as_bytes()));
    }

    #[test]
    fn a_records_key_leads_back_to_its_hash() {
        let (names, hash) = (Names::new("semel").unwrap(), KeyHash::from_bytes([9; 32]));
        assert_eq!(names.hash_of(&names.record(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.copy(&hash)), None, "a copy is no record");
        assert_eq!(names.hash_of(b"semel:held"), None);
        assert_eq!(names.hash_of(b"other:k:"), None);
    }

    #[test]
    fn a_prefix_that_is_a_pattern_or_a_hash_tag_is_refused() {
        for bad in ["", "a*", "{tag}", "a b", &"x".repeat(65)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
