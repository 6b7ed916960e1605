//! The files of the log, for readers. A long log has more files than a process may have open.

use std::{collections::BTreeMap, io, sync::Arc};

use bytes::Bytes;
use parking_lot::RwLock;
use semel_core::{Error, Result};

use super::{Location, corrupt, frame, removed, segment::name_of, unsure};
use crate::{
    disk::{Disk, DiskFile},
    identity,
};

/// How many files are kept open at most.
const OPEN: usize = 128;

#[derive(Debug)]
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    all: RwLock<BTreeMap<u32, Segment>>,
}

#[derive(Debug)]
struct Segment {
    capacity: u64,
    file: Option<Arc<dyn DiskFile>>,
}

impl Segments {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, all: RwLock::default() }
    }

    pub(super) fn add(&self, number: u32, capacity: u64) {
        self.all.write().insert(number, Segment { capacity, file: None });
    }

    /// Drops all segments before `first`, and returns their numbers.
    pub(super) fn drop_before(&self, first: u32) -> Vec<u32> {
        let mut all = self.all.write();
        let kept = all.split_off(&first);
        std::mem::replace(&mut *all, kept).into_keys().collect()
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.all.read().values().map(|segment| segment.capacity).sum()
    }

    /// The number of the oldest segment.
    pub(crate) fn first(&self) -> u32 {
        self.all.read().first_key_value().map_or(0, |(number, _)| *number)
    }

    fn numbers(&self) -> Vec<u32> {
        self.all.read().keys().copied().collect()
    }

    /// The error for all further calls, when the folder or a needed file was removed or replaced while this process has
    /// it open. Fails when the check itself fails.
    pub(crate) fn lost(&self) -> io::Result<Option<Error>> {
        let folder = || -> io::Result<_> {
            let lost = self.disk.lost()?;
            Ok(lost.map(|what| unsure("use", io::Error::other(what))))
        };
        if let Some(error) = folder()? {
            return Ok(Some(error));
        }
        let Some(name) = self.absent()? else { return Ok(None) };
        // The files of a folder that was removed meanwhile are gone with it.
        Ok(Some(folder()?.unwrap_or_else(|| removed(&name))))
    }

    /// The name of a needed file that is not there.
    fn absent(&self) -> io::Result<Option<String>> {
        if !self.disk.has(identity::NAME)? {
            return Ok(Some(identity::NAME.to_owned()));
        }
        for number in self.numbers() {
            let name = name_of(number);
            // A segment that was given up meanwhile is not needed.
            if !self.disk.has(&name)? && self.numbers().contains(&number) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// The bytes of a record. `None` when its segment is gone: the record has moved.
    pub(crate) fn read(&self, location: Location) -> Result<Option<Bytes>> {
        let Some(file) = self.file(location.segment)? else { return Ok(None) };
        let (offset, mut bytes) = frame_of(location);
        file.read_at(&mut bytes, offset).map_err(|error| unsure("read from", error))?;
        body(bytes, location).map(Some)
    }

    /// As [`Segments::read`], unless that would wait for the disk.
    pub(crate) fn read_at_once(&self, location: Location) -> Result<Option<Bytes>> {
        let Some(file) = self.open_file(location.segment) else { return Ok(None) };
        let (offset, mut bytes) = frame_of(location);
        match file.read_at_once(&mut bytes, offset).map_err(|error| unsure("read from", error))? {
            true => body(bytes, location).map(Some),
            false => Ok(None),
        }
    }

    fn open_file(&self, number: u32) -> Option<Arc<dyn DiskFile>> {
        self.all.read().get(&number)?.file.clone()
    }

    /// The file, which is opened if necessary. `None` when the segment is gone.
    fn file(&self, number: u32) -> Result<Option<Arc<dyn DiskFile>>> {
        if let Some(file) = self.open_file(number) {
            return Ok(Some(file));
        }
        let mut all = self.all.write();
        let Some(segment) = all.get_mut(&number) else { return Ok(None) };
        let opened = self.disk.open(&name_of(number)).map_err(|error| unsure("open", error))?;
        let file = segment.file.get_or_insert(opened).clone();
        close_some(&mut all, number);
        Ok(Some(file))
    }
}

/// Closes the oldest files beyond the bound, but not `except`.
fn close_some(all: &mut BTreeMap<u32, Segment>, except: u32) {
    let open = all.values().filter(|segment| segment.file.is_some()).count();
    let closable = all.iter_mut().filter(|(number, it)| **number != except && it.file.is_some());
    closable.take(open.saturating_sub(OPEN)).for_each(|(_, segment)| segment.file = None);
}

fn frame_of(location: Location) -> (u64, Vec<u8>) {
    let offset = location.extent.offset as usize - frame::BODY;
    (offset as u64, vec![0; frame::BODY + location.extent.length as usize])
}

fn body(frame: Vec<u8>, location: Location) -> Result<Bytes> {
    if frame::is_intact(&frame) {
        return Ok(Bytes::from(frame).slice(frame::BODY..));
    }
    let (name, offset) = (name_of(location.segment), location.extent.offset);
    Err(corrupt(&format!("{name} at {offset}: a record is not as it was written")))
}
