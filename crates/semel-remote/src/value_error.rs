//! What is said of a value that is no record of the key it was read for.

use semel_core::{Error, ErrorKind, KeyHash};

/// It is another key's record.
#[must_use]
pub fn wrong_record(store: &str, key: &KeyHash) -> Error {
    let subject = format!("{store}: asked for key {key} and was given another's record");
    Error::new(ErrorKind::Corrupt, subject)
}

/// Its first byte is from the future.
#[must_use]
pub fn newer_format(store: &str, format: u8) -> Error {
    let subject = format!(
        "{store}: a value has format {format:#04x}, newer than this build reads; upgrade this node first"
    );
    Error::new(ErrorKind::Unsupported, subject)
}

/// Somebody else wrote it: semel should have a `place` of its own.
#[must_use]
pub fn foreign_value(store: &str, key: &KeyHash, place: &str) -> Error {
    let subject = format!(
        "{store}: the value of key {key} was not written by semel; give semel a {place} of its own"
    );
    Error::new(ErrorKind::Corrupt, subject)
}
