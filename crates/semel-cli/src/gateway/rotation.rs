//! Seal keys that change while the gateway runs: their file is read again on SIGHUP, and when it has changed.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use semel::{KeyFile, KeyRing, Keys};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
    time::sleep,
};
use tracing::{error, info, warn};

use crate::settings::Config;

/// How often the file is looked at. It is read at the second look that finds it changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The file, and the ring that follows it.
struct Rotation {
    file: KeyFile,
    ring: KeyRing,
    asked: Signal,
}

/// Says what seals, and follows the file that the keys are from.
pub(super) fn start(config: &Config) -> Result<Option<JoinHandle<()>>> {
    let Some(seal) = &config.store_options.seal else { return Ok(None) };
    info!("sealing with key {}; {}", seal.ring.keys().seals_with(), open(&seal.ring.keys()));
    let Some(path) = &config.seal_file else { return Ok(None) };
    let rotation = Rotation::of(path, seal.ring.clone())?;
    Ok(Some(tokio::spawn(rotation.run())))
}

impl Rotation {
    fn of(path: &Path, ring: KeyRing) -> Result<Self> {
        let asked = signal(SignalKind::hangup()).context("signals cannot be listened for")?;
        let mut file = KeyFile::new(path);
        // Once more, so that no change since the settings were read goes unseen.
        ring.rotate(file.read()?)?;
        Ok(Self { file, ring, asked })
    }

    async fn run(mut self) {
        loop {
            let is_asked = select! {
                _ = self.asked.recv() => true,
                () = sleep(LOOK_EVERY) => false,
            };
            if is_asked || self.file.has_changed() {
                self.read();
            }
        }
    }

    /// A file that is no good changes nothing: what is sealed has to open.
    fn read(&mut self) {
        match self.file.read().and_then(|keys| self.ring.rotate(keys)) {
            Ok(before) => told(&before, &self.ring.keys()),
            Err(error) => {
                let keys = self.ring.keys();
                error!("seal keys stay as they were, {} seals: {error}", keys.seals_with());
            }
        }
    }
}

fn told(before: &Keys, now: &Keys) {
    info!("seal keys were read again: sealing with key {}; {}", now.seals_with(), open(now));
    let gone: Vec<_> = before.ids().filter(|id| !now.ids().any(|it| it == *id)).collect();
    if !gone.is_empty() {
        warn!("what is sealed with {} does not open any more", gone.join(", "));
    }
}

fn open(keys: &Keys) -> String {
    format!("these open: {}", keys.ids().collect::<Vec<_>>().join(", "))
}
