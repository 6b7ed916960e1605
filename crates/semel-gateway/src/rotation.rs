//! Replaces keys while the gateway runs: a file of seal keys or JWT keys is read again on SIGHUP, and when it has
//! changed. A file that cannot be used changes nothing.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use semel_service::{
    seal_keys::{SealKeyFile, SealReload},
    settings::{
        GatewayConfig, PrincipalSource,
        jwt::{self, JwtKeyKind, content, keys},
    },
};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
    time::sleep,
};
use tracing::{error, info};

use super::{
    metrics::{Reload, reloaded},
    principal::JwtVerifier,
};

/// How often the files are checked. A changed file is read at the second check that finds the same change.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The task that reads key files again.
struct KeyRotation {
    hangup: Signal,
    seal: Option<SealKeyFile>,
    jwt: Option<JwtKeyFile>,
}

/// Listens for SIGHUP, which then no longer ends the process. The demo does not listen: it ends with its terminal.
pub(super) fn listen(config: &GatewayConfig) -> Result<Option<Signal>> {
    let listen = || signal(SignalKind::hangup()).context("signals cannot be listened for");
    (!config.demo).then(listen).transpose()
}

/// Logs which key seals, and starts to watch the key files.
pub(super) fn start(
    config: &GatewayConfig,
    jwt: Option<&JwtVerifier>,
    hangup: Option<Signal>,
) -> Result<Option<JoinHandle<()>>> {
    let seal = SealKeyFile::open(&config.store_options, config.seal_file.as_deref())?;
    let jwt = jwt.and_then(|jwt| JwtKeyFile::of(config, jwt));
    Ok(hangup.map(|hangup| tokio::spawn(KeyRotation { hangup, seal, jwt }.run())))
}

impl KeyRotation {
    async fn run(mut self) {
        loop {
            let is_requested = select! {
                _ = self.hangup.recv() => true,
                () = sleep(CHECK_EVERY) => false,
            };
            if is_requested {
                info!("SIGHUP: keys are read again; every other setting needs a restart");
            }
            if let Some(seal) = &mut self.seal
                && (is_requested || seal.has_changed())
            {
                match seal.read() {
                    SealReload::Replaced => reloaded(Reload::SealKeys, true),
                    SealReload::Refused => reloaded(Reload::SealKeys, false),
                    SealReload::Unchanged => {}
                }
            }
            if let Some(jwt) = &mut self.jwt
                && (is_requested || jwt.file.has_changed())
            {
                jwt.read();
            }
        }
    }
}

/// The file of the JWT keys, and the verifier that gets them.
struct JwtKeyFile {
    file: WatchedFile,
    kind: JwtKeyKind,
    jwt: JwtVerifier,
    /// The content of the file when its keys were last accepted.
    content: Vec<u8>,
}

impl JwtKeyFile {
    fn of(config: &GatewayConfig, jwt: &JwtVerifier) -> Option<Self> {
        let PrincipalSource::Jwt(settings) = &config.principal else { return None };
        let path = settings.file.clone();
        // A pipe can be read only once.
        if !path.is_file() {
            info!("JWT keys will not be read again: {} is not a regular file", path.display());
            return None;
        }
        let (file, content) = (WatchedFile::new(path), Vec::new());
        let mut this = Self { file, kind: settings.kind, jwt: jwt.clone(), content };
        // Read once more, so that a change since the settings were read is not missed.
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
        // The file may have been replaced by a pipe, and opening a pipe can wait forever.
        let path = &self.file.path;
        if path.exists() && !path.is_file() {
            return Err(format!("{} is not a regular file", path.display()));
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
        error!("JWT keys are not replaced (--principal {}): {error}", self.kind.scheme());
    }
}

/// A file whose changes are noticed once it stops changing, so that a file is not read while it is written.
struct WatchedFile {
    path: PathBuf,
    /// The stamp of the file when it was last read.
    read: Option<FileStamp>,
    /// The stamp at the last check.
    checked: Option<FileStamp>,
}

/// Differs, almost certainly, when the content of the file differs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl WatchedFile {
    const fn new(path: PathBuf) -> Self {
        Self { path, read: None, checked: None }
    }

    fn note(&mut self) {
        self.read = self.stamp();
        self.checked = self.read;
    }

    fn has_changed(&mut self) -> bool {
        let now = self.stamp();
        let is_stable = std::mem::replace(&mut self.checked, now) == now;
        is_stable && now != self.read
    }

    fn stamp(&self) -> Option<FileStamp> {
        let stamp = |metadata: Metadata| FileStamp {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            inode: metadata.ino(),
        };
        self.path.metadata().ok().map(stamp)
    }
}
