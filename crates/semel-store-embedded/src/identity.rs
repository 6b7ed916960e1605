//! The identity of a folder: its id, and the secret that its keys are hashed with. It is written once, to one file.

use semel_core::{Error, ErrorKind, HashSecret, Result};

use crate::{
    disk::{Disk, write_whole},
    log::{FolderId, manifest, number_of},
};

pub(crate) const NAME: &str = "identity";
const DRAFT: &str = "identity.new";
const MAGIC: &[u8; 8] = b"semel-id";
const LENGTH: usize = 8 + 16 + 32 + 4;

#[derive(Clone, Debug)]
pub(crate) struct FolderIdentity {
    pub(crate) store: FolderId,
    pub(crate) secret: HashSecret,
}

impl FolderIdentity {
    /// Reads the identity of this folder, or gives it one if it is empty.
    pub(crate) fn of(disk: &dyn Disk) -> Result<Self> {
        let names = disk.list().map_err(|error| failed("list", error))?;
        refuse_foreign(&names)?;
        let bytes = match names.iter().any(|name| name == NAME) {
            true => read(disk)?,
            false if has_segments(disk, &names)? => return Err(missing()),
            false => make(disk)?,
        };
        parse(&bytes)
    }
}

/// True when the folder has segments, or had some.
fn has_segments(disk: &dyn Disk, names: &[String]) -> Result<bool> {
    let found = names.iter().any(|name| number_of(name).is_some());
    Ok(found || manifest::read(disk)?.is_some_and(|highest| highest > 0))
}

/// Refuses a folder with foreign files: the store could not tell which files are missing.
pub(crate) fn refuse_foreign(names: &[String]) -> Result<()> {
    match names.iter().find(|name| is_foreign(name)) {
        None => Ok(()),
        Some(foreign) => Err(Error::invalid(format!(
            "embedded store: the folder holds {foreign:?}, which is not the store's; choose an \
             empty folder, or move that file away"
        ))),
    }
}

/// A file that neither this store nor the file system made.
fn is_foreign(name: &str) -> bool {
    let ours = [NAME, DRAFT].contains(&name) || number_of(name).is_some();
    !ours && !name.starts_with('.') && name != "lost+found"
}

fn read(disk: &dyn Disk) -> Result<[u8; LENGTH]> {
    let file = disk.open(NAME).map_err(|error| failed("open", error))?;
    let mut bytes = [0; LENGTH];
    file.read_at(&mut bytes, 0).map_err(|_| damaged("the file \"identity\" is cut short"))?;
    Ok(bytes)
}

/// Writes the list of segments first: a folder with an identity and no list has had segments.
fn make(disk: &dyn Disk) -> Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(&rand::random::<[u8; 16]>());
    bytes[24..56].copy_from_slice(&rand::random::<[u8; 32]>());
    let check = crc32fast::hash(&bytes[..LENGTH - 4]).to_be_bytes();
    bytes[LENGTH - 4..].copy_from_slice(&check);
    let write = || {
        manifest::write(disk, 0)?;
        write_whole(disk, NAME, &bytes)
    };
    write().map_err(|error| failed("write to", error))?;
    Ok(bytes)
}

fn parse(bytes: &[u8; LENGTH]) -> Result<FolderIdentity> {
    let check = crc32fast::hash(&bytes[..LENGTH - 4]).to_be_bytes();
    if &bytes[..8] != MAGIC || bytes[LENGTH - 4..] != check {
        return Err(damaged("the file \"identity\" is not as it was written"));
    }
    let mut store = [0; 16];
    store.copy_from_slice(&bytes[8..24]);
    Ok(FolderIdentity { store, secret: HashSecret::from_bytes(&bytes[24..56])? })
}

fn failed(what: &str, error: std::io::Error) -> Error {
    let subject = format!("embedded store: cannot {what} its folder: {error}");
    Error::new(ErrorKind::Unavailable, subject).with_source(error)
}

/// The error for a used folder without its identity.
pub(crate) fn missing() -> Error {
    damaged("the file \"identity\" is missing")
}

fn damaged(what: &str) -> Error {
    let fix = "restore it from any backup of this folder: it never changes, and without it no key is recognised";
    Error::new(ErrorKind::Corrupt, format!("embedded store: {what}; {fix}"))
}
