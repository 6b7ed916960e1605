//! Checks that the newest segments are there. The list of segments, and the number of the last file, say up to which
//! number there must be files. The file with the highest number may be an unused spare; the one before it then has
//! batches.

use semel_core::{Error, ErrorKind, Result};

use super::{
    manifest, missing, name_of, number_of,
    recover::{open, read_header},
    segment::SegmentHeader,
    unsure,
};
use crate::{disk::Disk, identity};

/// Refuses a log that ends before the `listed` number, or before the last file, which may be a spare. Segments behind
/// the last header are `numbers` too.
pub(super) fn check(listed: Option<u32>, numbers: &[u32], begun: &[SegmentHeader]) -> Result<()> {
    // Versions without the list made the first segment right after the identity.
    if listed.is_none() && numbers.is_empty() {
        return Err(no_segments());
    }
    let next = begun.last().map_or(1, |header| header.number + 1);
    let highest = listed.max(numbers.last().copied()).unwrap_or(0);
    match (next..=highest).rev().find(|number| !numbers.contains(number)) {
        None => Ok(()),
        Some(number) if number == highest && number == next => Err(missing_next(number)),
        Some(number) => Err(missing(number)),
    }
}

/// Fails when a segment is missing in a folder that another process has open. It reads without a lock: the other
/// process may make and remove segments meanwhile.
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
    // The segment before may be given up once this one has a header.
    match read_header(&*open(disk, highest)?, &name_of(highest))? {
        Some(_) => Ok(()),
        None => Err(missing(highest - 1)),
    }
}

fn no_segments() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "embedded store: the folder has an identity and has no segments; restore them (00000001.log and so \
         on) from a backup (keys recorded since that backup run again), or start with a new folder, where all keys \
         recorded in this one run again",
    )
}

/// The number after the last segment that has batches. An earlier version may have removed that spare.
fn missing_next(number: u32) -> Error {
    let way_out = format!(
        "if an earlier version of semel used the folder last, delete {:?} from it: earlier versions do not keep that \
         list",
        manifest::NAME
    );
    Error::new(ErrorKind::Corrupt, format!("{}; {way_out}", missing(number)))
}
