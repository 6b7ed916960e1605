//! Versioned migrations: one transaction applies all that are missing, and one process at a time runs it.

use std::time::Duration;

use semel_core::{Error, ErrorKind, Result};
use tokio::time::timeout;
use tokio_postgres::Transaction;

use crate::{
    connection::{ConnectionPurpose, PgConnection, within_connect_timeout},
    error::explain,
    meta::{self, MetaTable},
    names::PgNames,
    pooler::refuse_shared_pool,
    settings::PgSettings,
};

/// A change of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version that the tables have after it.
    pub version: u32,
    /// What it does.
    pub what: &'static str,
}

/// The version of the tables that this build works on.
pub(crate) const NEWEST: u32 = 1;

/// The statements of a migration.
type MigrationSql = fn(&PgNames) -> String;

const ALL: [(Migration, MigrationSql); NEWEST as usize] =
    [(Migration { version: 1, what: "make the tables and their indexes" }, tables)];

pub(crate) async fn apply_to(settings: PgSettings) -> Result<Vec<Migration>> {
    refuse_shared_pool(&settings).await?;
    let mut connection = PgConnection::open(&settings, ConnectionPurpose::Maintenance).await?;
    apply(&mut connection, &settings).await
}

pub(crate) async fn pending_on(settings: PgSettings) -> Result<Vec<Migration>> {
    refuse_shared_pool(&settings).await?;
    let connection = PgConnection::open(&settings, ConnectionPurpose::Maintenance).await?;
    let meta =
        within_connect_timeout(&settings, MetaTable::read(&connection.client, &settings.names))
            .await?;
    pending(&meta, &settings.names)
}

/// Applies what is missing. If nothing is, it needs no rights beyond reading.
pub(crate) async fn apply(
    connection: &mut PgConnection,
    settings: &PgSettings,
) -> Result<Vec<Migration>> {
    let names = &settings.names;
    let meta = within_connect_timeout(settings, MetaTable::read(&connection.client, names)).await?;
    if pending(&meta, names)?.is_empty() {
        return Ok(Vec::new());
    }
    let no_answer = || Error::new(ErrorKind::Unavailable, NO_ANSWER);
    let limit = LONGEST.max(settings.maintenance_timeout() * 2);
    timeout(limit, make(connection, names)).await.unwrap_or_else(|_| Err(no_answer()))
}

/// Longer than the server's own timeouts: it is reached only if the server stops answering.
const LONGEST: Duration = Duration::from_secs(600);
const NO_ANSWER: &str =
    "postgres: the server stopped answering while tables were made; look at it, then migrate again";

async fn make(connection: &mut PgConnection, names: &PgNames) -> Result<Vec<Migration>> {
    let transaction = connection.client.transaction().await.map_err(|error| explain(&error))?;
    lock(&transaction, names).await?;
    let missing = pending(&MetaTable::read(&transaction, names).await?, names)?;
    make_schema(&transaction, names).await?;
    for (migration, text) in ALL.iter().filter(|(migration, _)| missing.contains(migration)) {
        let text = format!("{}; {}", text(names), note(migration, names));
        transaction.batch_execute(&text).await.map_err(|error| explain(&error))?;
    }
    transaction.commit().await.map_err(|error| explain(&error))?;
    Ok(missing)
}

/// Waits for another process that migrates. Reads after this see what that process committed.
async fn lock(transaction: &Transaction<'_>, names: &PgNames) -> Result<()> {
    let lock = names.lock();
    let wait = format!(
        "SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '300s';
         SELECT pg_advisory_xact_lock({lock})"
    );
    transaction.batch_execute(&wait).await.map_err(|error| explain(&error))
}

fn note(migration: &Migration, names: &PgNames) -> String {
    format!(
        "INSERT INTO {} (name, value) VALUES ('{}', '{}')
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        names.meta(),
        meta::VERSION,
        migration.version,
    )
}

/// Looks first: `CREATE SCHEMA IF NOT EXISTS` needs the right to create it even if it exists.
async fn make_schema(transaction: &Transaction<'_>, names: &PgNames) -> Result<()> {
    let schema = &names.schema;
    let exists = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)";
    let row = transaction.query_one(exists, &[schema]).await.map_err(|error| explain(&error))?;
    if row.get(0) {
        return Ok(());
    }
    let make = format!("CREATE SCHEMA \"{schema}\"");
    transaction.batch_execute(&make).await.map_err(|error| explain(&error))
}

fn pending(meta: &MetaTable, names: &PgNames) -> Result<Vec<Migration>> {
    let has = meta.version.unwrap_or(0);
    if has > NEWEST {
        meta.check_version(names)?;
    }
    Ok(ALL.iter().map(|(migration, _)| *migration).filter(|it| it.version > has).collect())
}

/// Version 1. Columns of fixed size come first, so that none is padded. Outcomes are compressed before they are sent.
fn tables(names: &PgNames) -> String {
    let (records, meta, table) = (names.records(), names.meta(), &names.table);
    format!(
        "CREATE TABLE {records} (
           token bigint NOT NULL,
           claimed_at timestamptz NOT NULL,
           lease_until timestamptz NOT NULL,
           created_at timestamptz NOT NULL,
           lease_ms bigint NOT NULL,
           retention_ms bigint NOT NULL,
           failure_retention_ms bigint NOT NULL,
           expires_at timestamptz,
           completed_at timestamptz,
           attempts integer NOT NULL,
           max_attempts integer,
           state smallint NOT NULL,
           on_lost_owner smallint NOT NULL,
           outcome_format smallint,
           dirty boolean NOT NULL,
           abandoned boolean NOT NULL,
           waited boolean NOT NULL,
           key_hash bytea NOT NULL,
           fingerprint bytea,
           nonce bytea,
           namespace text,
           principal text,
           operation text,
           caller_id text,
           outcome bytea,
           CONSTRAINT \"{table}_pkey\" PRIMARY KEY (key_hash)
         ) WITH (autovacuum_vacuum_scale_factor = 0.05);
         ALTER TABLE {records} ALTER COLUMN outcome SET STORAGE EXTERNAL;
         CREATE INDEX \"{table}_expires_at\" ON {records} (expires_at);
         CREATE INDEX \"{table}_on_hold\" ON {records} (lease_until) WHERE state = 2 AND on_lost_owner = 1;
         CREATE INDEX \"{table}_stuck\" ON {records} (state, key_hash) WHERE state IN (4, 5);
         CREATE TABLE {meta} (
           name text PRIMARY KEY,
           value bytea,
           holder bytea,
           until timestamptz
         )"
    )
}
