//! Maintenance of a table by an operator, outside of the services that use it.

use std::{ops::Deref, time::Duration};

use semel_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;

use crate::{
    InboxPool, InboxStats, InboxVariant, MaintenanceReport, PgInbox, builder::RETENTION_AT_LEAST,
    drivers::single_connection::SingleConnection, table::InboxTable,
};

/// The maintenance of an inbox's table by an operator. It has its own connection, and detects the variant of the table.
/// `semel purge --inbox` uses it.
#[derive(Debug)]
pub struct InboxMaintenance(PgInbox<SingleConnection>);

impl InboxMaintenance {
    /// The shortest retention of an inbox.
    pub const RETENTION_AT_LEAST: Duration = RETENTION_AT_LEAST;

    /// Opens the inbox in `table`, which is `[SCHEMA.]TABLE`, over the connection that `connecting` opens.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] when the table does not exist or is not that of an inbox, and when the retention is too
    /// short; and the errors of `connecting`.
    pub async fn open<C>(
        connecting: impl Future<Output = Result<C>>,
        table: &str,
        retention: Duration,
    ) -> Result<Self>
    where
        C: Deref<Target = Client> + Send + Sync + 'static,
    {
        let (schema, table) = table.split_once('.').unwrap_or(("public", table));
        let names = InboxTable::new(schema, table)?;
        let pool = SingleConnection::new(connecting.await?);
        let variant = detect_variant(&pool, &names).await?;
        let builder = PgInbox::builder(pool).schema(schema).table(table).variant(variant);
        Ok(Self(builder.operator().retention(retention).build().await?))
    }

    /// The variant of the table.
    #[must_use]
    pub fn variant(&self) -> InboxVariant {
        self.0.settings.variant
    }

    /// The table with its schema.
    #[must_use]
    pub fn table(&self) -> String {
        self.0.table()
    }

    /// As [`PgInbox::maintain`], for all consumers.
    ///
    /// # Errors
    ///
    /// When the server fails, when the role lacks a right, and when the retention is shorter than the source window in
    /// the table's comment, or than a week if the comment has none.
    pub async fn run(&self) -> Result<MaintenanceReport> {
        self.0.maintain().await
    }

    /// As [`PgInbox::stats`].
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn stats(&self) -> Result<InboxStats> {
        self.0.stats().await
    }
}

async fn detect_variant(pool: &impl InboxPool, names: &InboxTable) -> Result<InboxVariant> {
    let query = "SELECT json_build_array(c.relkind, c.relispartition, (
           SELECT coalesce(json_agg(a.attname), '[]') FROM pg_attribute AS a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
         FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1::text AND c.relname = $2::text";
    let (schema, table) = (&names.schema, &names.name);
    let Some(reply) = pool.query_text(query, &[schema, table]).await? else {
        return Err(Error::invalid(format!(
            "there is no table {schema}.{table} in this database; name the table of an inbox as \
             [SCHEMA.]TABLE, or create it with `inbox.install()`"
        )));
    };
    let unexpected_reply = |_| Error::new(ErrorKind::Corrupt, "inbox: unexpected columns");
    let (kind, is_part, columns): (char, bool, Vec<String>) =
        serde_json::from_str(&reply).map_err(unexpected_reply)?;
    if is_part {
        return Err(Error::invalid(format!(
            "{schema}.{table} is a partition; name its parent table"
        )));
    }
    let has = |wanted: &[&str]| wanted.iter().all(|it| columns.iter().any(|has| has == it));
    let is_inbox = has(&["event_id", "event_type", "processed_at"]);
    match (is_inbox, kind, has(&["consumer", "occurred_on", "outcome"])) {
        (true, 'p', true) => Ok(InboxVariant::Partitioned),
        (true, 'r', true) => Ok(InboxVariant::Full),
        (true, 'r', false) => Ok(InboxVariant::Minimal),
        _ => Err(Error::invalid(format!(
            "{schema}.{table} is not the table of an inbox, and it was not changed; name one that \
             `inbox.install()` created"
        ))),
    }
}
