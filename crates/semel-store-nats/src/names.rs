//! The names of the stream and the subjects in NATS.

use semel_core::{Error, KeyHash, Result};

/// Stream and subjects of one store, all below one prefix of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct NatsNames {
    pub(crate) bucket: String,
    /// The stream behind the bucket.
    pub(crate) stream: String,
    records: String,
    /// The index of the keys that a purge checks: claimed in hold mode, Unknown or Dead.
    index: String,
    pub(crate) leader: String,
    pub(crate) secret_check: String,
}

impl NatsNames {
    pub(crate) const MAX: usize = 64;

    pub(crate) fn new(bucket: &str, prefix: &str) -> Result<Self> {
        for (what, name) in [("bucket", bucket), ("prefix", prefix)] {
            let fits = |c: u8| c.is_ascii_alphanumeric() || b"_-".contains(&c);
            if name.is_empty() || name.len() > Self::MAX || !name.bytes().all(fits) {
                return Err(Error::invalid(format!(
                    "nats: the {what} must be 1 to {} characters out of a-z, A-Z, 0-9 and _-",
                    Self::MAX
                )));
            }
        }
        let name = |what: &str| format!("$KV.{bucket}.{prefix}.{what}");
        Ok(Self {
            bucket: bucket.to_owned(),
            stream: format!("KV_{bucket}"),
            records: name("k."),
            index: name("w."),
            leader: name("leader"),
            secret_check: name("hash-secret-check"),
        })
    }

    /// The subject of a record.
    pub(crate) fn record(&self, key: &KeyHash) -> String {
        with_hex(&self.records, key)
    }

    /// The subject of a key's index entry.
    pub(crate) fn index_entry(&self, key: &KeyHash) -> String {
        with_hex(&self.index, key)
    }

    /// The key hash of a record or an index entry; `None` for other subjects.
    pub(crate) fn hash_of(&self, subject: &str) -> Option<KeyHash> {
        let hex =
            subject.strip_prefix(&self.records).or_else(|| subject.strip_prefix(&self.index))?;
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
        }
        Some(KeyHash::from_bytes(bytes))
    }

    /// Matches all records.
    pub(crate) fn all_records(&self) -> String {
        format!("{}*", self.records)
    }

    /// Matches all entries of the index.
    pub(crate) fn all_index_entries(&self) -> String {
        format!("{}*", self.index)
    }

    /// The subjects that the stream must store.
    pub(crate) fn bucket_subjects(&self) -> String {
        format!("$KV.{}.>", self.bucket)
    }
}

fn with_hex(start: &str, key: &KeyHash) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut subject = String::with_capacity(start.len() + 64);
    subject.push_str(start);
    for byte in key.as_bytes() {
        subject.push(char::from(DIGITS[usize::from(byte >> 4)]));
        subject.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    subject
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_record_contains_its_hash() {
        let (names, hash) =
            (NatsNames::new("ids", "semel").unwrap(), KeyHash::from_bytes([0xa9; 32]));
        assert_eq!(names.hash_of(&names.record(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.index_entry(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.leader), None);
        assert_eq!(names.record(&hash), format!("$KV.ids.semel.k.{}", "a9".repeat(32)));
    }

    #[test]
    fn a_name_that_is_a_pattern_or_two_tokens_is_refused() {
        for bad in ["", "a*", "a.b", "a>", "a b", &"x".repeat(65)] {
            assert!(NatsNames::new(bad, "semel").is_err(), "{bad}");
            assert!(NatsNames::new("ids", bad).is_err(), "{bad}");
        }
    }
}
