//! What things are called inside NATS.

use semel_core::{Error, KeyHash, Result};

/// Stream and subjects of one store, all below one prefix of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) bucket: String,
    /// The stream behind the bucket.
    pub(crate) stream: String,
    records: String,
    /// Keys that cleanup has to look at: on hold, Unknown or Dead.
    watched: String,
    pub(crate) leader: String,
    pub(crate) secret_check: String,
}

impl Names {
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
            watched: name("w."),
            leader: name("leader"),
            secret_check: name("hash-secret-check"),
        })
    }

    /// The subject of a record.
    pub(crate) fn record(&self, key: &KeyHash) -> String {
        spelled(&self.records, key)
    }

    /// The subject of a key's entry among those that cleanup looks at.
    pub(crate) fn watched(&self, key: &KeyHash) -> String {
        spelled(&self.watched, key)
    }

    /// Whose record a subject is, if it is one.
    pub(crate) fn hash_of(&self, subject: &str) -> Option<KeyHash> {
        let hex =
            subject.strip_prefix(&self.records).or_else(|| subject.strip_prefix(&self.watched))?;
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
    pub(crate) fn all_watched(&self) -> String {
        format!("{}*", self.watched)
    }

    /// What the stream has to listen to.
    pub(crate) fn bucket_subjects(&self) -> String {
        format!("$KV.{}.>", self.bucket)
    }
}

fn spelled(start: &str, key: &KeyHash) -> String {
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
    fn a_records_subject_leads_back_to_its_hash() {
        let (names, hash) = (Names::new("ids", "semel").unwrap(), KeyHash::from_bytes([0xa9; 32]));
        assert_eq!(names.hash_of(&names.record(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.watched(&hash)), Some(hash));
        assert_eq!(names.hash_of(&names.leader), None);
        assert_eq!(names.record(&hash), format!("$KV.ids.semel.k.{}", "a9".repeat(32)));
    }

    #[test]
    fn a_name_that_is_a_pattern_or_two_tokens_is_refused() {
        for bad in ["", "a*", "a.b", "a>", "a b", &"x".repeat(65)] {
            assert!(Names::new(bad, "semel").is_err(), "{bad}");
            assert!(Names::new("ids", bad).is_err(), "{bad}");
        }
    }
}
