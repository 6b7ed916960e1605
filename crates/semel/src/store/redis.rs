//! Opens and examines a store in Redis or Valkey.

use std::sync::Arc;

use semel_core::{Result, Store};
use semel_store_redis::{RedisStore, RedisStoreBuilder};

use super::{Examined, StoreOptions, examine::may_be_opened, server_url::ServerUrl};

pub(super) async fn open(server: &ServerUrl<1>, options: &StoreOptions) -> Result<RedisStore> {
    builder(server, options).connect().await
}

pub(super) async fn examine(server: &ServerUrl<1>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let options = StoreOptions { skip_setup: true, ..options.clone() };
    let store: Option<Arc<dyn Store>> = match may_be_opened(&findings) {
        true => Some(Arc::new(open(server, &options).await?)),
        false => None,
    };
    Ok(Examined { store, findings })
}

pub(super) fn builder(server: &ServerUrl<1>, options: &StoreOptions) -> RedisStoreBuilder {
    let [prefix] = &server.own;
    let builder = RedisStore::builder(&server.url);
    let builder = prefix.iter().fold(builder, |builder, prefix| builder.prefix(prefix));
    let builder = builder.skip_setup(options.skip_setup);
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
