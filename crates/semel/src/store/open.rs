//! Opens the store that a URL names.

use std::sync::Arc;

use semel_core::{Cached, Error, Result, Store};

#[cfg(any(
    feature = "memory",
    feature = "embedded",
    feature = "postgres",
    feature = "redis",
    feature = "nats"
))]
use super::url::StoreLocation;
use super::{StoreOptions, StoreUrl};

impl StoreUrl {
    /// Opens the store: makes a folder, connects to a server.
    ///
    /// # Errors
    ///
    /// If it cannot be opened. The message says what to do and shows no password.
    pub async fn open(&self, options: &StoreOptions) -> Result<Arc<dyn Store>> {
        let store = self.open_layered(options).await.map_err(|error| self.cannot_open(error))?;
        // Below the cache, which is in memory only and holds opened outcomes.
        #[cfg(feature = "sealed")]
        let store = super::seal::sealed(store, options.seal.as_ref());
        Ok(match options.cache {
            Some(entries) => Arc::new(Cached::new(store, entries)),
            None => store,
        })
    }

    pub(super) fn cannot_open(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("cannot open {self}: {error}")).with_source(error)
    }

    #[cfg_attr(
        not(any(feature = "embedded", feature = "postgres", feature = "redis", feature = "nats")),
        expect(unused_variables, reason = "memory has no options")
    )]
    pub(super) async fn open_bare(&self, options: &StoreOptions) -> Result<Arc<dyn Store>> {
        match &self.0 {
            #[cfg(feature = "memory")]
            StoreLocation::Memory => Ok(Arc::new(semel_core::MemoryStore::new())),
            #[cfg(feature = "embedded")]
            StoreLocation::File(folder) => Ok(Arc::new(super::folder::open(folder, options)?)),
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(server) => {
                Ok(Arc::new(super::postgres::open(server, options).await?))
            }
            #[cfg(feature = "redis")]
            StoreLocation::Redis(server) => {
                Ok(Arc::new(super::redis::open(server, options).await?))
            }
            #[cfg(feature = "nats")]
            StoreLocation::Nats(server) => Ok(Arc::new(super::nats::open(server, options).await?)),
            #[cfg(not(all(
                feature = "memory",
                feature = "embedded",
                feature = "postgres",
                feature = "redis",
                feature = "nats"
            )))]
            other => Err(other.kind().missing()),
        }
    }
}
