//! Opening records in Redis or Valkey.

use std::sync::Arc;

use semel_core::Result;
use semel_store_redis::RedisStore;

use super::{Examined, StoreOptions, server::Server};

pub(super) async fn open(server: &Server<1>, options: &StoreOptions) -> Result<RedisStore> {
    let [prefix] = &server.own;
    let builder = RedisStore::builder(&server.url);
    let builder = prefix.iter().fold(builder, |builder, prefix| builder.prefix(prefix));
    let builder = builder.look_only(options.look_only);
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone())).connect().await
}

pub(super) async fn examine(server: &Server<1>, options: &StoreOptions) -> Result<Examined> {
    let store = open(server, &StoreOptions { look_only: true, ..options.clone() }).await?;
    let findings = store.findings().await?;
    Ok(Examined { store: Some(Arc::new(store)), findings })
}
