//! Replaces seal keys while a service runs: their file is read again on SIGHUP, and when it has changed. A file that
//! cannot be used changes nothing.

use std::path::Path;

use anyhow::Result;
use semel::{KeyFile, KeyRing, SealKeys, StoreOptions};
use tracing::{error, info, warn};

/// The file of the seal keys, and the ring that gets them.
#[derive(Debug)]
pub struct SealKeyFile {
    file: KeyFile,
    ring: KeyRing,
}

/// What reading the file again has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReload {
    /// The file has other keys, which are in force.
    Replaced,
    /// The file has the same keys.
    Unchanged,
    /// The file cannot be used. The keys of before are in force.
    Refused,
}

impl SealKeyFile {
    /// Logs which key seals. `None` if nothing is sealed, or if the keys are from no file.
    ///
    /// # Errors
    ///
    /// When the file cannot be used any more.
    pub fn open(options: &StoreOptions, path: Option<&Path>) -> Result<Option<Self>> {
        let Some(seal) = &options.seal else { return Ok(None) };
        info!("sealing with key {}; {}", seal.ring.keys().seals_with(), open(&seal.ring.keys()));
        let Some(path) = path else { return Ok(None) };
        let (mut file, ring) = (KeyFile::new(path), seal.ring.clone());
        // Read once more, so that a change since the settings were read is not missed.
        ring.rotate(file.read()?)?;
        Ok(Some(Self { file, ring }))
    }

    /// True when the file has changed since it was read, and has stopped changing.
    pub fn has_changed(&mut self) -> bool {
        self.file.has_changed()
    }

    /// Reads the file again. The ring keeps its keys if the file is bad: sealed records have to open.
    pub fn read(&mut self) -> SealReload {
        match self.file.read().and_then(|keys| self.ring.rotate(keys)) {
            Ok(before) => {
                let now = self.ring.keys();
                log_rotation(&before, &now);
                // An id always names the same key, so equal ids mean that no key has changed.
                match before.ids().eq(now.ids()) && before.seals_with() == now.seals_with() {
                    true => SealReload::Unchanged,
                    false => SealReload::Replaced,
                }
            }
            Err(error) => {
                let keys = self.ring.keys();
                error!("seal keys are not replaced, {} still seals: {error}", keys.seals_with());
                SealReload::Refused
            }
        }
    }
}

fn log_rotation(before: &SealKeys, now: &SealKeys) {
    info!("seal keys were read again: sealing with key {}; {}", now.seals_with(), open(now));
    let removed: Vec<_> = before.ids().filter(|id| !now.ids().any(|it| it == *id)).collect();
    if !removed.is_empty() {
        warn!("records sealed with {} cannot be opened any more", removed.join(", "));
    }
}

fn open(keys: &SealKeys) -> String {
    format!("these open: {}", keys.ids().collect::<Vec<_>>().join(", "))
}
