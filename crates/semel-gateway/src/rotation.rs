//! Keys that change while the gateway runs: a file of seal keys or of JWT keys is read again on SIGHUP, and when it
//! has changed. A file that is no good changes nothing.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use semel::{KeyFile, KeyRing, Keys};
use semel_service::settings::{
    GatewayConfig, PrincipalSource,
    jwt::{self, JwtKeyKind, content, keys},
};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
    time::sleep,
};
use tracing::{error, info, warn};

use super::{
    metrics::{Reload, reloaded},
    principal::JwtVerifier,
};

/// How often the files are looked at. One is read at the second look that finds it changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The files, and what follows them.
struct KeyRotation {
    hangup: Signal,
    seal: Option<SealKeyFile>,
    jwt: Option<JwtKeyFile>,
}

/// From now on SIGHUP does not end the process. The demo belongs to a terminal, and ends with it.
pub(super) fn listen(config: &GatewayConfig) -> Result<Option<Signal>> {
    let listen = || signal(SignalKind::hangup()).context("signals cannot be listened for");
    (!config.demo).then(listen).transpose()
}

/// Logs what seals, and follows the files that keys are from.
pub(super) fn start(
    config: &GatewayConfig,
    jwt: Option<&JwtVerifier>,
    hangup: Option<Signal>,
) -> Result<Option<JoinHandle<()>>> {
    let seal = SealKeyFile::of(config)?;
    let jwt = jwt.and_then(|jwt| JwtKeyFile::of(config, jwt));
    Ok(hangup.map(|hangup| tokio::spawn(KeyRotation { hangup, seal, jwt }.run())))
}

impl KeyRotation {
    async fn run(mut self) {
        loop {
            let is_asked = select! {
                _ = self.hangup.recv() => true,
                () = sleep(LOOK_EVERY) => false,
            };
            if is_asked {
                info!("SIGHUP: keys are read again; every other setting needs a restart");
            }
            if let Some(seal) = &mut self.seal
                && (is_asked || seal.file.has_changed())
            {
                seal.read();
            }
            if let Some(jwt) = &mut self.jwt
                && (is_asked || jwt.file.has_changed())
            {
                jwt.read();
            }
        }
    }
}

/// The file of seal keys, and the ring that follows it.
struct SealKeyFile {
    file: KeyFile,
    ring: KeyRing,
}

impl SealKeyFile {
    fn of(config: &GatewayConfig) -> Result<Option<Self>> {
        let Some(seal) = &config.store_options.seal else { return Ok(None) };
        info!("sealing with key {}; {}", seal.ring.keys().seals_with(), open(&seal.ring.keys()));
        let Some(path) = &config.seal_file else { return Ok(None) };
        let (mut file, ring) = (KeyFile::new(path), seal.ring.clone());
        // Once more, so that no change since the settings were read goes unseen.
        ring.rotate(file.read()?)?;
        Ok(Some(Self { file, ring }))
    }

    /// What is sealed has to open: the ring keeps its keys when the file is no good.
    fn read(&mut self) {
        match self.file.read().and_then(|keys| self.ring.rotate(keys)) {
            Ok(before) => {
                let now = self.ring.keys();
                // An id stays with its key, so these tell whether anything has changed.
                if !before.ids().eq(now.ids()) || before.seals_with() != now.seals_with() {
                    reloaded(Reload::SealKeys, true);
                }
                told(&before, &now);
            }
            Err(error) => {
                reloaded(Reload::SealKeys, false);
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

/// The file of JWT keys, and the verifier that follows it.
struct JwtKeyFile {
    file: WatchedFile,
    kind: JwtKeyKind,
    jwt: JwtVerifier,
    /// What the file held when its keys were last put in force.
    content: Vec<u8>,
}

impl JwtKeyFile {
    fn of(config: &GatewayConfig, jwt: &JwtVerifier) -> Option<Self> {
        let PrincipalSource::Jwt(settings) = &config.principal else { return None };
        let path = settings.file.clone();
        // A pipe can be read only once.
        if !path.is_file() {
            info!("JWT keys are not read again: {} is no regular file", path.display());
            return None;
        }
        let (file, content) = (WatchedFile::new(path), Vec::new());
        let mut this = Self { file, kind: settings.kind, jwt: jwt.clone(), content };
        // Once more, so that no change since the settings were read goes unseen.
        match this.keys() {
            Ok((keys, content)) => {
                this.jwt.replace(keys);
                this.content = content;
            }
            Err(error) => this.refused(&error),
        }
        Some(this)
    }

    /// The keys that the file holds now, and its content.
    fn keys(&mut self) -> std::result::Result<(jwt::JwtKeys, Vec<u8>), String> {
        self.file.note();
        // What was a file may be a pipe now, and opening that would wait for ever.
        let path = &self.file.path;
        if path.exists() && !path.is_file() {
            return Err(format!("{} is no regular file", path.display()));
        }
        let content = content(path)?;
        Ok((keys(self.kind, path, &content)?, content))
    }

    fn read(&mut self) {
        match self.keys() {
            Ok((keys, content)) if content == self.content => {
                info!("JWT keys were read again and are the same: {} in force", keys.count());
            }
            Ok((keys, content)) => {
                reloaded(Reload::JwtKeys, true);
                info!("JWT keys were read again: {} in force", keys.count());
                self.jwt.replace(keys);
                self.content = content;
            }
            Err(error) => self.refused(&error),
        }
    }

    fn refused(&self, error: &str) {
        reloaded(Reload::JwtKeys, false);
        error!("JWT keys stay as they were (--principal {}): {error}", self.kind.scheme());
    }
}

/// A file whose changes are noticed once it has come to rest: half a file is not read while it is written.
struct WatchedFile {
    path: PathBuf,
    /// What the file was when it was last read.
    read: Option<FileStamp>,
    /// What it was at the last look.
    looked: Option<FileStamp>,
}

/// Differs, with near certainty, when the content of the file differs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl WatchedFile {
    const fn new(path: PathBuf) -> Self {
        Self { path, read: None, looked: None }
    }

    fn note(&mut self) {
        self.read = self.stamp();
        self.looked = self.read;
    }

    fn has_changed(&mut self) -> bool {
        let now = self.stamp();
        let rests = std::mem::replace(&mut self.looked, now) == now;
        rests && now != self.read
    }

    fn stamp(&self) -> Option<FileStamp> {
        let stamp = |about: Metadata| FileStamp {
            modified: about.modified().ok(),
            length: about.len(),
            inode: about.ino(),
        };
        self.path.metadata().ok().map(stamp)
    }
}
