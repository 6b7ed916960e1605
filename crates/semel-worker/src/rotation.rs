//! Reads the file of the seal keys again on SIGHUP, and when it has changed.

use std::time::Duration;

use anyhow::{Context, Result};
use semel_service::{
    seal_keys::{SealKeyFile, SealReload},
    settings::WorkerConfig,
};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
    time::sleep,
};
use tracing::info;

use crate::metrics;

/// How often the file is checked. A changed file is read at the second check that finds the same change.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Listens for SIGHUP, which then no longer ends the process.
pub(crate) fn listen() -> Result<Signal> {
    signal(SignalKind::hangup()).context("signals cannot be listened for")
}

/// Logs which key seals, and starts to watch the file of the keys.
pub(crate) fn start(config: &WorkerConfig, hangup: Signal) -> Result<JoinHandle<()>> {
    let seal = SealKeyFile::open(&config.store_options, config.seal_file.as_deref())?;
    Ok(tokio::spawn(watch(seal, hangup)))
}

async fn watch(mut seal: Option<SealKeyFile>, mut hangup: Signal) {
    loop {
        let is_requested = select! {
            _ = hangup.recv() => true,
            () = sleep(CHECK_EVERY) => false,
        };
        if is_requested {
            info!("SIGHUP: keys are read again; every other setting needs a restart");
        }
        if let Some(seal) = &mut seal
            && (is_requested || seal.has_changed())
        {
            match seal.read() {
                SealReload::Replaced => metrics::reloaded("ok"),
                SealReload::Refused => metrics::reloaded("refused"),
                SealReload::Unchanged => {}
            }
        }
    }
}
