//! Opening records in a NATS KV bucket.

use std::sync::Arc;

use semel_core::{ErrorKind, Result, Store};
use semel_store_nats::{NatsStore, NatsStoreBuilder};

use super::{Examined, StoreOptions, examine::may_be_opened, server::Server};

pub(super) async fn open(server: &Server<1>, options: &StoreOptions) -> Result<NatsStore> {
    builder(server, options).connect().await
}

/// A bucket that is not there yet is looked at, and not made.
pub(super) async fn examine(server: &Server<1>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let options = StoreOptions { look_only: true, ..options.clone() };
    let store: Option<Arc<dyn Store>> = match may_be_opened(&findings) {
        true => match open(server, &options).await {
            Ok(store) => Some(Arc::new(store)),
            // All else that could be wrong with it was found already: there is no bucket.
            Err(error) if error.kind() == ErrorKind::Invalid => None,
            Err(error) => return Err(error),
        },
        false => None,
    };
    Ok(Examined { store, findings })
}

pub(super) fn builder(server: &Server<1>, options: &StoreOptions) -> NatsStoreBuilder {
    let [prefix] = &server.own;
    let builder = NatsStore::builder(&server.url);
    let builder = prefix.iter().fold(builder, |builder, prefix| builder.prefix(prefix));
    let builder = builder.look_only(options.look_only);
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
