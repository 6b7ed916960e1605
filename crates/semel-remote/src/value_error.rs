//! Errors about a value that is not a record of the key it was read for.

use semel_core::{Error, ErrorKind, KeyHash};

/// The value is the record of another key.
#[must_use]
pub fn wrong_record(store: &str, key: &KeyHash) -> Error {
    let subject = format!("{store}: read key {key} and got the record of another key");
    Error::new(ErrorKind::Corrupt, subject)
}

/// A newer version of semel wrote the value.
#[must_use]
pub fn newer_format(store: &str, format: u8) -> Error {
    let subject = format!(
        "{store}: a value has format {format:#04x}, newer than this build reads; upgrade this node first"
    );
    Error::new(ErrorKind::Unsupported, subject)
}

/// Another program wrote the value: semel needs a `place` of its own.
#[must_use]
pub fn foreign_value(store: &str, key: &KeyHash, place: &str) -> Error {
    let subject = format!(
        "{store}: the value of key {key} was not written by semel; give semel a {place} of its own"
    );
    Error::new(ErrorKind::Corrupt, subject)
}
