//! Opening a table of PostgreSQL.

use std::sync::Arc;

use semel_core::{FailbackWindow, Finding, Result, Store};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};

use super::{Examined, StoreOptions, examine::may_be_opened, server::Server};

pub(super) async fn open(server: &Server<2>, options: &StoreOptions) -> Result<PostgresStore> {
    builder(server, options).migrate(options.migrate).connect().await
}

pub(super) async fn examine(server: &Server<2>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let options = StoreOptions { look_only: true, ..options.clone() };
    let store: Option<Arc<dyn Store>> = match may_be_opened(&findings) {
        true => Some(Arc::new(open(server, &options).await?)),
        false => None,
    };
    Ok(Examined { store, findings })
}

/// What is left of the last outage of a primary; nothing where the store cannot be opened, which is found
/// elsewhere.
pub(super) async fn examine_epoch(server: &Server<2>, options: &StoreOptions) -> Option<Finding> {
    let options = StoreOptions { look_only: true, migrate: false, ..options.clone() };
    let store = open(server, &options).await.ok()?;
    let (left, unknown) = (store.remaining().await.ok()?, store.stats().await.ok()?.unknown);
    let Some(left) = left.filter(|left| !left.is_zero()) else {
        return Some(Finding::good("failover: nothing is left of an outage of Redis"));
    };
    let left = left.as_secs();
    Some(Finding::warning(
        format!(
            "failover: Redis was unreachable; PostgreSQL has to be asked for {left} s more, and has {unknown} \
             unknown keys"
        ),
        "it has to be asked for as long as it has unknown keys: `semel keys list --state unknown`",
    ))
}

pub(super) fn builder(server: &Server<2>, options: &StoreOptions) -> PostgresStoreBuilder {
    let [schema, table] = &server.own;
    let builder = PostgresStore::builder(&server.url);
    let builder = schema.iter().fold(builder, |builder, schema| builder.schema(schema));
    let builder = table.iter().fold(builder, |builder, table| builder.table(table));
    let builder = builder.look_only(options.look_only);
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
