//! Opens and examines a store in a NATS KV bucket.

use std::sync::Arc;

use semel_core::{ErrorKind, Result, Store};
use semel_store_nats::{NatsStore, NatsStoreBuilder};

use super::{Examined, StoreOptions, examine::may_be_opened, server_url::ServerUrl};

pub(super) async fn open(server: &ServerUrl<1>, options: &StoreOptions) -> Result<NatsStore> {
    builder(server, options).connect().await
}

/// Examines the bucket, and does not make a missing one.
pub(super) async fn examine(server: &ServerUrl<1>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let options = StoreOptions { skip_setup: true, ..options.clone() };
    let store: Option<Arc<dyn Store>> = match may_be_opened(&findings) {
        true => match open(server, &options).await {
            Ok(store) => Some(Arc::new(store)),
            // The checks have found no other fault, so the bucket does not exist.
            Err(error) if error.kind() == ErrorKind::Invalid => None,
            Err(error) => return Err(error),
        },
        false => None,
    };
    Ok(Examined { store, findings })
}

pub(super) fn builder(server: &ServerUrl<1>, options: &StoreOptions) -> NatsStoreBuilder {
    let [prefix] = &server.own;
    let builder = NatsStore::builder(&server.url);
    let builder = prefix.iter().fold(builder, |builder, prefix| builder.prefix(prefix));
    let builder = builder.skip_setup(options.skip_setup);
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
