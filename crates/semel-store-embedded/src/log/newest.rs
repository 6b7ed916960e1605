//! Whether the newest segments are there. The list of segments says up to which number there must be files;
//! the one of the highest number may be a spare that was not begun, and then the one before it has batches.

use semel_core::{Error, ErrorKind, Result};

use super::{
    manifest, missing, name_of, number_of,
    recover::{open, read_header},
    segment::Header,
    unsure,
};
use crate::{disk::Disk, identity};

/// Refuses a log that ends before the `highest` number. Segments behind the last header are `numbers` too.
pub(super) fn check(highest: Option<u32>, numbers: &[u32], begun: &[Header]) -> Result<()> {
    let last = begun.last().map_or(0, |header| header.number);
    let is_absent = |number: &u32| !numbers.contains(number);
    match highest {
        // A version before the list makes the first segment right after the identity.
        None if numbers.is_empty() => Err(no_segments()),
        None => Ok(()),
        Some(highest) => {
            (last + 1..=highest).rev().find(is_absent).map_or(Ok(()), |number| Err(missing(number)))
        }
    }
}

/// What is missing from a folder that another process has open. Looks without a lock: the other process may
/// make and remove segments meanwhile.
pub(crate) fn missing_in_use(disk: &dyn Disk) -> Result<()> {
    loop {
        let Some(highest) = manifest::read(disk)? else { return Ok(()) };
        let names = disk.list().map_err(|error| unsure("list", error))?;
        let looked = look(disk, highest, &names);
        // A number that the list has gained meanwhile explains why an older file is gone.
        if looked.is_ok() || manifest::read(disk)? == Some(highest) {
            return looked;
        }
    }
}

fn look(disk: &dyn Disk, highest: u32, names: &[String]) -> Result<()> {
    if highest > 0 && !names.iter().any(|name| name == identity::NAME) {
        return Err(identity::missing());
    }
    let is_there =
        |number: u32| number == 0 || names.iter().any(|it| number_of(it) == Some(number));
    if !is_there(highest) {
        return Err(missing(highest));
    }
    if is_there(highest.saturating_sub(1)) {
        return Ok(());
    }
    // The one before may be given up once this one is begun.
    match read_header(&*open(disk, highest)?, &name_of(highest))? {
        Some(_) => Ok(()),
        None => Err(missing(highest - 1)),
    }
}

fn no_segments() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "embedded store: the folder has an identity and has no segments; restore them (00000001.log and so \
         on) from a backup, or start with a new folder, where the keys recorded in this one run again",
    )
}
