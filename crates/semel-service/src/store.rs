//! Opens the store that the settings name, and builds an engine over it.

use std::thread;

use anyhow::{Context, Result, anyhow};
use semel::{Engine, StoreOptions, StoreUrl};
use tokio::{runtime::Handle, sync::oneshot};
use tracing::warn;

use crate::settings::GatewayConfig;

/// Opens the store that the settings of the gateway name, and builds an engine over it.
///
/// # Errors
///
/// As [`open_for_service`].
pub async fn engine(config: &GatewayConfig) -> Result<Engine> {
    open_for_service(config.store.as_ref(), &config.store_options).await
}

/// Opens the store of a long-running service, and builds an engine over it.
///
/// # Errors
///
/// Why the store cannot be opened, with the settings to look at.
pub async fn open_for_service(url: Option<&StoreUrl>, options: &StoreOptions) -> Result<Engine> {
    let url = url.context("there is no store; set --store")?;
    if url.is_volatile() {
        warn!("store {url} is not durable: a restart forgets every outcome");
    }
    match url.folder() {
        Some(_) => open_in_thread(url, options).await,
        None => open(url, options).await,
    }
}

/// Opens a folder in a thread of its own: reading a long log blocks its thread for a while. Neither dropping this
/// future nor the end of the process waits for the thread: a store that is being opened survives a crash.
async fn open_in_thread(url: &StoreUrl, options: &StoreOptions) -> Result<Engine> {
    let (url, options, runtime) = (url.clone(), options.clone(), Handle::current());
    let (send, opened) = oneshot::channel();
    let work = move || {
        // This fails if the future was dropped, and nothing waits for the engine.
        let _ = send.send(runtime.block_on(open(&url, &options)));
    };
    let thread = thread::Builder::new().name("semel-opening".into()).spawn(work);
    thread.context("cannot start the thread that opens the store")?;
    opened.await.context("opening the store panicked")?
}

/// Opens a store, and builds an engine over it.
///
/// # Errors
///
/// Why the store cannot be opened, with the settings to look at.
pub async fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Engine> {
    let store = url.open(options).await.map_err(|error| refused(&error))?;
    let builder = Engine::builder().store(store);
    let secret = options.hash_secret.clone();
    Ok(secret.into_iter().fold(builder, |it, secret| it.hash_secret(secret)).build()?)
}

/// Adds to a store's error the settings that its fix is about.
pub fn refused(error: &semel::Error) -> anyhow::Error {
    let text = error.to_string();
    let flags = match text.contains("hash secret") {
        true => "--hash-secret-file, SEMEL_HASH_SECRET, --store",
        false => "--store",
    };
    anyhow!("{text} ({flags})")
}
