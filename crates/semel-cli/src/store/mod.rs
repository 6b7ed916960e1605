//! From a store's settings to an engine over it.

mod operate;

use anyhow::{Context, Result, anyhow};
use semel::{Engine, StoreOptions, StoreUrl};
use tracing::warn;

pub(crate) use self::operate::{Usage, operate};
use crate::settings::Config;

/// The engine that the gateway's settings ask for.
pub(crate) async fn engine(config: &Config) -> Result<Engine> {
    let url = config.store.as_ref().context("there is no store; set --store")?;
    if url.is_forgotten() {
        warn!("store {url} is not durable: a restart forgets every outcome");
    }
    open(url, &config.store_options).await
}

async fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Engine> {
    let store = url.open(options).await.map_err(|error| refused(&error))?;
    let builder = Engine::builder().store(store);
    let secret = options.hash_secret.clone();
    Ok(secret.into_iter().fold(builder, |it, secret| it.hash_secret(secret)).build()?)
}

/// What went wrong, and which setting is meant by the fix.
pub(crate) fn refused(error: &semel::Error) -> anyhow::Error {
    let text = error.to_string();
    let flags = match text.contains("hash secret") {
        true => "--hash-secret-file, SEMEL_HASH_SECRET, --store",
        false => "--store",
    };
    anyhow!("{text} ({flags})")
}
