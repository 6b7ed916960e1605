//! Opens and examines a store in a PostgreSQL table.

use std::sync::Arc;

use semel_core::{FailbackWindow, Finding, Result, Store};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};

use super::{Examined, StoreOptions, examine::may_be_opened, server_url::ServerUrl};

pub(super) async fn open(server: &ServerUrl<2>, options: &StoreOptions) -> Result<PostgresStore> {
    builder(server, options).migrate(options.migrate).connect().await
}

pub(super) async fn examine(server: &ServerUrl<2>, options: &StoreOptions) -> Result<Examined> {
    let findings = builder(server, options).checks().await?;
    let options = StoreOptions { skip_setup: true, ..options.clone() };
    let store: Option<Arc<dyn Store>> = match may_be_opened(&findings) {
        true => Some(Arc::new(open(server, &options).await?)),
        false => None,
    };
    Ok(Examined { store, findings })
}

/// The rest of the failback window after an outage of the primary. `None` if the store cannot be opened, which
/// another finding says.
pub(super) async fn examine_failback_window(
    server: &ServerUrl<2>,
    options: &StoreOptions,
) -> Option<Finding> {
    let options = StoreOptions { skip_setup: true, migrate: false, ..options.clone() };
    let store = open(server, &options).await.ok()?;
    let (left, unknown) = (store.remaining().await.ok()?, store.stats().await.ok()?.unknown);
    let Some(left) = left.filter(|left| !left.is_zero()) else {
        return Some(Finding::good("failover: no failback window is open"));
    };
    let left = left.as_secs();
    Some(Finding::warning(
        format!(
            "failover: Redis was unreachable; PostgreSQL is still read for {left} s, and has {unknown} unknown keys"
        ),
        "PostgreSQL is read as long as it has unknown keys: `semel keys list --state unknown`",
    ))
}

pub(super) fn builder(server: &ServerUrl<2>, options: &StoreOptions) -> PostgresStoreBuilder {
    let [schema, table] = &server.own;
    let builder = PostgresStore::builder(&server.url);
    let builder = schema.iter().fold(builder, |builder, schema| builder.schema(schema));
    let builder = table.iter().fold(builder, |builder, table| builder.table(table));
    let builder = builder.skip_setup(options.skip_setup);
    let count = options.connections.into_iter();
    let builder = count.fold(builder, |builder, count| builder.connections(count));
    let secret = options.hash_secret.iter();
    secret.fold(builder, |builder, secret| builder.hash_secret(secret.clone()))
}
