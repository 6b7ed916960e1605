//! From a store's URL to an engine over it.

use anyhow::{Context, Result};
use semel::{EmbeddedStore, Engine, MemoryStore};
use tracing::warn;

use crate::settings::{Config, StoreUrl};

/// The engine that the settings ask for.
pub(crate) fn engine(config: &Config) -> Result<Engine> {
    let builder = Engine::builder();
    let builder = match config.store.as_ref().context("there is no store; set --store")? {
        StoreUrl::Memory => {
            warn!("store memory: is not durable: a restart forgets every outcome");
            builder.store(MemoryStore::new())
        }
        StoreUrl::File(folder) => {
            let store = EmbeddedStore::open(folder)
                .with_context(|| format!("cannot open the store in {}", folder.display()))?;
            builder.store(store)
        }
    };
    let builder = match &config.hash_secret {
        Some(secret) => builder.hash_secret(secret.clone()),
        None => builder,
    };
    Ok(builder.build()?)
}
