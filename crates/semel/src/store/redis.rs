//! Opening records in Redis or Valkey.

use semel_core::Result;
use semel_store_redis::RedisStore;

use super::{StoreOptions, server::Server};

pub(super) async fn open(server: &Server<1>, options: &StoreOptions) -> Result<RedisStore> {
    let [prefix] = &server.own;
    let builder = RedisStore::builder(&server.url);
    let builder = prefix.iter().fold(builder, |builder, prefix| builder.prefix(prefix));
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone())).connect().await
}
