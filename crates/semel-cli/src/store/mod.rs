//! From a store's URL to an engine over it.

mod secret;

use std::{error::Error, io, path::Path};

use anyhow::{Context, Result, anyhow};
use semel::{EmbeddedStore, Engine, MemoryStore};
use tracing::warn;

use crate::settings::{Config, StoreUrl};

/// The engine that the settings ask for.
pub(crate) async fn engine(config: &Config) -> Result<Engine> {
    let builder = match &config.hash_secret {
        Some(secret) => Engine::builder().hash_secret(secret.clone()),
        None => Engine::builder(),
    };
    match config.store.as_ref().context("there is no store; set --store")? {
        StoreUrl::Memory => {
            warn!("store memory: is not durable: a restart forgets every outcome");
            Ok(builder.store(MemoryStore::new()).build()?)
        }
        StoreUrl::File(folder) => {
            let store = EmbeddedStore::open(folder).map_err(|error| refused(folder, &error))?;
            let engine = builder.store(store).build()?;
            secret::check(folder, &engine, config.hash_secret.is_some()).await?;
            Ok(engine)
        }
    }
}

/// Why a folder cannot be the store, and what to do about it.
fn refused(folder: &Path, error: &semel::Error) -> anyhow::Error {
    let what = error.to_string();
    let what = what.trim_start_matches("embedded store: ");
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let fix = cause.map_or_else(String::new, |cause| format!("; {}", fix(cause.kind())));
    anyhow!("cannot open the store in {}: {what}{fix}", folder.display())
}

const fn fix(cause: io::ErrorKind) -> &'static str {
    match cause {
        io::ErrorKind::NotADirectory => "name a folder, not a file, with --store file:PATH",
        io::ErrorKind::NotFound => {
            "make the folder above it, or name another with --store file:PATH"
        }
        io::ErrorKind::PermissionDenied => {
            "let this user write there, or name another folder with --store file:PATH"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "name a folder on a disk that can be written with --store file:PATH"
        }
        io::ErrorKind::StorageFull => "free space on that disk",
        _ => "mend it, or name another folder with --store file:PATH",
    }
}
