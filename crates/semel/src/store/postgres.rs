//! Opening a table of PostgreSQL.

use std::sync::Arc;

use semel_core::{Level, Result, Store};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};

use super::{Examined, StoreOptions, server::Server};

pub(super) async fn open(server: &Server<2>, options: &StoreOptions) -> Result<PostgresStore> {
    builder(server, options).migrate(options.migrate).connect().await
}

/// Opening settles the hash secret for all who come later, so a table that nobody has used is not opened.
pub(super) async fn examine(server: &Server<2>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let is_bad = findings.iter().any(|it| it.level == Level::Bad);
    let is_new = findings.iter().any(|it| it.what.contains("settled the hash secret yet"));
    let store: Option<Arc<dyn Store>> = match is_bad || is_new {
        true => None,
        false => Some(Arc::new(open(server, options).await?)),
    };
    Ok(Examined { store, findings })
}

pub(super) fn builder(server: &Server<2>, options: &StoreOptions) -> PostgresStoreBuilder {
    let [schema, table] = &server.own;
    let builder = PostgresStore::builder(&server.url);
    let builder = schema.iter().fold(builder, |builder, schema| builder.schema(schema));
    let builder = table.iter().fold(builder, |builder, table| builder.table(table));
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
