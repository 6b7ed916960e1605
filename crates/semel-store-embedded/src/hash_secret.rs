//! Refuses to open a folder with another hash secret than its first one. With another secret no earlier key would be
//! found, and every retry would silently run again.

use std::io;

use semel_core::{Error, ErrorKind, HashSecret, Principal, Result, Scope};

use crate::disk::{Disk, write_whole};

/// A hidden file, so that other versions do not refuse it as foreign.
const NAME: &str = ".hash-secret-check";
const LENGTH: usize = 64;

/// The secret to hash keys with: the `given` one, or else the folder's `own`. Fails unless it is the first secret of
/// this folder.
pub(crate) fn agreed(
    disk: &dyn Disk,
    own: HashSecret,
    given: Option<HashSecret>,
    records: u64,
) -> Result<HashSecret> {
    let first = read(disk)?;
    let is_given = given.is_some();
    let secret = given.unwrap_or(own);
    let value = value(&secret)?;
    match first {
        Some(first) if first == value => Ok(secret),
        Some(_) => Err(another(is_given)),
        // The folder's own secret is stored with its identity.
        None if !is_given => Ok(secret),
        // The folder has records, and nothing says which secret they were hashed with.
        None if records > 0 => Err(unknown_secret()),
        None => {
            write_whole(disk, NAME, &value).map(|()| secret).map_err(|error| failed("write", error))
        }
    }
}

fn read(disk: &dyn Disk) -> Result<Option<[u8; LENGTH]>> {
    let mut value = [0; LENGTH];
    let read = disk.open(NAME).and_then(|file| file.read_at(&mut value, 0));
    match read {
        Ok(()) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", error)),
    }
}

/// A value that identifies the secret without revealing it: the keyed hash of a key that no request has.
fn value(secret: &HashSecret) -> Result<[u8; LENGTH]> {
    let key = Scope::new("semel", Principal::Anonymous, "hash secret").key("check")?;
    let mut value = [0; LENGTH];
    value.copy_from_slice(key.hash(Some(secret)).to_hex().as_bytes());
    Ok(value)
}

fn another(is_given: bool) -> Error {
    let or_none = if is_given { ", or none if it began without" } else { "" };
    Error::invalid(format!(
        "embedded store: the hash secret is not the one that the folder began with ({NAME}): no earlier \
         key would be found, and retries would run again; give that one{or_none}, or begin in another \
         folder"
    ))
}

fn unknown_secret() -> Error {
    Error::invalid(format!(
        "embedded store: the folder has records and no {NAME}, so it is unknown whether they were made \
         with this hash secret; give none if it began without, bring that file back if it had one, or \
         begin in another folder"
    ))
}

fn failed(what: &str, error: io::Error) -> Error {
    let subject = format!("embedded store: cannot {what} {NAME} in its folder: {error}");
    Error::new(ErrorKind::Unavailable, subject).with_source(error)
}
