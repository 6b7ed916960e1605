//! A disk in memory that can lose power, fill up and fail.
//!
//! It keeps synced content apart from content that was only written. A power cut keeps a random part of the latter,
//! sector by sector and name by name, in any order.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    Nothing,
    Everything,
    /// Names of files, and nothing of their bytes.
    Names,
    /// Bytes of files, and none of the names.
    Bytes,
    Anything(u64),
}

/// The ways in which a power cut is always tried.
pub(super) const CUTS: [Keeps; 4] = [Keeps::Nothing, Keeps::Everything, Keeps::Names, Keeps::Bytes];

/// How the disk misbehaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Files may take up so many bytes in all.
    pub(super) space: Option<u64>,
    /// Every sync fails.
    pub(super) syncs_fail: bool,
    /// Every write fails, half of it done.
    pub(super) writes_fail: bool,
    /// The first segment cannot be removed.
    pub(super) first_stays: bool,
    /// Whether files are there cannot be found out.
    pub(super) looks_fail: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedDisk(Arc<Mutex<DiskWorld>>);

#[derive(Clone, Debug, Default)]
struct DiskWorld {
    files: BTreeMap<u64, Bytes>,
    names: BTreeMap<String, u64>,
    synced_names: BTreeMap<String, u64>,
    last_id: u64,
    faults: Faults,
    syncs: u64,
    /// Disks as a power cut at each sync would leave them.
    images: Option<Vec<SimulatedDisk>>,
    seed: u64,
}

#[derive(Clone, Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Where the two may differ.
    written: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    id: u64,
}

impl SimulatedDisk {
    pub(super) fn set(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    pub(super) fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    pub(super) fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// From now on, keeps the disks that power cuts would leave.
    pub(super) fn take_images(&self, seed: u64) {
        let mut world = self.0.lock();
        (world.images, world.seed) = (Some(Vec::new()), seed);
    }

    /// The disks kept since the last time.
    pub(super) fn images(&self) -> Vec<Self> {
        self.0.lock().images.replace(Vec::new()).unwrap_or_default()
    }

    /// The disk after a power cut now.
    pub(super) fn cut(&self, keeps: Keeps) -> Self {
        self.0.lock().cut(keeps)
    }

    /// Changes bytes behind the store's back.
    pub(super) fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.0.lock();
        let id = world.names[name];
        let bytes = world.files.get_mut(&id).unwrap();
        change(&mut bytes.now);
        bytes.synced = bytes.now.clone();
    }
}

impl DiskWorld {
    fn used(&self) -> u64 {
        self.names.values().map(|id| self.files[id].now.len() as u64).sum()
    }

    fn cut(&self, keeps: Keeps) -> SimulatedDisk {
        let mut rng =
            StdRng::seed_from_u64(if let Keeps::Anything(seed) = keeps { seed } else { 0 });
        let kept = |what: Keeps, chance: &mut StdRng| match keeps {
            Keeps::Nothing => false,
            Keeps::Everything => true,
            Keeps::Names | Keeps::Bytes => what == keeps,
            Keeps::Anything(_) => chance.random(),
        };
        let mut names = self.synced_names.clone();
        for (name, id) in &self.names {
            if names.get(name) != Some(id) && kept(Keeps::Names, &mut rng) {
                names.insert(name.clone(), *id);
            }
        }
        for name in self.synced_names.keys() {
            if !self.names.contains_key(name) && kept(Keeps::Names, &mut rng) {
                names.remove(name);
            }
        }
        let mut files = BTreeMap::new();
        for id in names.values() {
            let bytes = self.files[id].cut(|| kept(Keeps::Bytes, &mut rng));
            files.insert(*id, Bytes { now: bytes.clone(), synced: bytes, written: Vec::new() });
        }
        let synced_names = names.clone();
        let last_id = self.last_id;
        SimulatedDisk(Arc::new(Mutex::new(DiskWorld {
            files,
            names,
            synced_names,
            last_id,
            ..DiskWorld::default()
        })))
    }

    /// Keeps what a cut in the middle of a sync would leave.
    fn before_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.images.is_some() {
            self.seed += 1;
            let images: Vec<SimulatedDisk> = CUTS
                .into_iter()
                .chain([Keeps::Anything(self.seed)])
                .map(|keeps| self.cut(keeps))
                .collect();
            self.images.get_or_insert_default().extend(images);
        }
        if self.faults.syncs_fail { Err(eio()) } else { Ok(()) }
    }
}

impl Bytes {
    fn cut(&self, mut kept: impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for &(start, end) in &self.written {
            let first = start / SECTOR * SECTOR;
            for sector in (first..end).step_by(SECTOR) {
                let end = (sector + SECTOR).min(self.now.len());
                if kept() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[sector..end].copy_from_slice(&self.now[sector..end]);
                }
            }
        }
        bytes
    }
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = *self.0.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), id }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.0.lock();
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.last_id += 1;
        let id = world.last_id;
        world.names.insert(name.to_owned(), id);
        world.files.insert(id, Bytes::default());
        Ok(Arc::new(SimulatedFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        let id = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        if world.faults.first_stays && name == "00000001.log" {
            return Err(eio());
        }
        let removed = world.names.remove(name);
        removed.map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.0.lock();
        world.before_sync()?;
        world.synced_names = world.names.clone();
        Ok(())
    }

    fn has(&self, name: &str) -> io::Result<bool> {
        let world = self.0.lock();
        if world.faults.looks_fail { Err(eio()) } else { Ok(world.names.contains_key(name)) }
    }

    fn lost(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[&self.id].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let world = self.disk.0.lock();
        let start = usize::try_from(offset).unwrap();
        let found = world.files[&self.id].now.get(start..start + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.read_at(buffer, offset).map(|()| true)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        let (start, faults, used) = (usize::try_from(offset).unwrap(), world.faults, world.used());
        let length = world.files[&self.id].now.len();
        let (mut done, mut result) = (bytes.len(), Ok(()));
        if faults.writes_fail {
            (done, result) = (bytes.len() / 2, Err(eio()));
        }
        let grown = (start + done).saturating_sub(length) as u64;
        if faults.space.is_some_and(|space| grown > 0 && used + grown > space) {
            (done, result) = (0, Err(io::ErrorKind::StorageFull.into()));
        }
        let file = world.files.get_mut(&self.id).unwrap();
        file.now.resize(length.max(start + done), 0);
        file.now[start..start + done].copy_from_slice(&bytes[..done]);
        file.written.push((start, start + done));
        result
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        let (result, seed) = (world.before_sync(), world.syncs);
        let file = world.files.get_mut(&self.id).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        // A sync that fails may have reached the disk in parts, and the system takes the rest for
        // synced: a later one does not write it.
        file.synced = file.cut(|| result.is_ok() || rng.random());
        file.written.clear();
        result
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.disk.0.lock().names.values().any(|id| *id == self.id))
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}
