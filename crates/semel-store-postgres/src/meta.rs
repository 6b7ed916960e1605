//! The companion table `…_meta`: the version of the tables, the check value of the hash secret, the identity of the
//! table, the leader of maintenance, and the failback window.

use semel_core::{Error, ErrorKind, HashSecret, Result, StoreId};
use tokio_postgres::GenericClient;

use crate::{
    connection::{Params, PgConnection},
    error::explain,
    migrate::NEWEST,
    names::PgNames,
    settings::PgSettings,
};

/// What the companion table holds.
#[derive(Debug, Default)]
pub(crate) struct MetaTable {
    pub(crate) version: Option<u32>,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) identity: Option<StoreId>,
}

pub(crate) const VERSION: &str = "schema_version";
pub(crate) const SECRET: &str = "hash_secret_check";
pub(crate) const IDENTITY: &str = "identity";
pub(crate) const CLEANUP: &str = "cleanup";
pub(crate) const FAILOVER: &str = "failover";

impl MetaTable {
    pub(crate) async fn read(client: &impl GenericClient, names: &PgNames) -> Result<Self> {
        // Not `to_regclass`: inside a transaction its cache may miss a table that was just created.
        let exists =
            "SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON relnamespace = n.oid
                      WHERE nspname = $1 AND relname = $2)";
        let companion = format!("{}_meta", names.table);
        let exists = client.query_one(exists, &[&names.schema, &companion]).await;
        let exists = exists.and_then(|row| row.try_get::<_, bool>(0));
        if !exists.map_err(|error| explain(&error))? {
            return Ok(Self::default());
        }
        let query = format!("SELECT name, value FROM {} WHERE name IN ($1, $2, $3)", names.meta());
        let rows = client.query(&query, &[&VERSION, &SECRET, &IDENTITY]).await;
        let mut meta = Self::default();
        for row in rows.map_err(|error| explain(&error))? {
            let (name, value): (&str, Option<Vec<u8>>) = (row.get(0), row.get(1));
            match name {
                VERSION => meta.version = value.as_deref().and_then(number),
                SECRET => meta.secret = value,
                _ => meta.identity = value.as_deref().and_then(identity),
            }
        }
        Ok(meta)
    }

    /// Refuses tables that this build cannot work on.
    pub(crate) fn check_version(&self, names: &PgNames) -> Result<()> {
        let (schema, table) = (&names.schema, &names.table);
        match self.version {
            Some(NEWEST) => Ok(()),
            Some(newer) if newer > NEWEST => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "postgres: {schema}.{table} has version {newer}, newer than {NEWEST}, the newest this build knows; upgrade this node first"
                ),
            )),
            Some(older) => Err(Error::invalid(format!(
                "postgres: {schema}.{table} has version {older}, and this build needs {NEWEST}; run `semel migrate`, or build the store with `.migrate(true)`"
            ))),
            None => Err(Error::invalid(format!(
                "postgres: there is no table {schema}.{table}; run `semel migrate`, or build the store with `.migrate(true)`"
            ))),
        }
    }

    /// Refuses a secret that differs from the one the table was first used with.
    pub(crate) fn check_secret(&self, secret: Option<&HashSecret>) -> Result<()> {
        let agreed =
            self.secret.as_ref().is_none_or(|agreed| *agreed == HashSecret::check_value(secret));
        if agreed { Ok(()) } else { Err(Error::invalid(DISAGREE)) }
    }
}

const DISAGREE: &str = "postgres: the hash secret differs from the one this table was first used with; give every process the same --hash-secret-file or SEMEL_HASH_SECRET, or none at all";

/// Checks version and secret. Writes the secret's check value and an identity of the table unless another process
/// did: the first one wins. Every connection does this, because the server behind the URL may have changed.
pub(crate) async fn check_and_settle(
    connection: &PgConnection,
    settings: &PgSettings,
) -> Result<MetaTable> {
    let mut meta = MetaTable::read(&connection.client, &settings.names).await?;
    meta.check_version(&settings.names)?;
    if (meta.secret.is_none() || meta.identity.is_none()) && !settings.skip_setup {
        let value = HashSecret::check_value(settings.secret.as_ref());
        let insert = format!(
            "INSERT INTO {} (name, value) VALUES ($1, $2), ($3, $4) ON CONFLICT (name) DO NOTHING",
            settings.names.meta()
        );
        let (secret, identity) = (value.as_slice(), StoreId::random());
        let values: &Params<'_> = &[&SECRET, &secret, &IDENTITY, &identity.as_bytes().as_slice()];
        let inserted = connection.client.execute(&insert, values).await;
        inserted.map_err(|error| explain(&error))?;
        meta = MetaTable::read(&connection.client, &settings.names).await?;
    }
    meta.check_secret(settings.secret.as_ref())?;
    Ok(meta)
}

fn identity(bytes: &[u8]) -> Option<StoreId> {
    bytes.try_into().ok().map(StoreId::from_bytes)
}

fn number(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
