//! Upkeep from outside of the services that use a table.

use std::{ops::Deref, time::Duration};

use semel_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;

use crate::table::InboxTable;
use crate::{
    InboxPool, InboxStats, InboxVariant, PgInbox, Upkeep, builder::RETENTION_AT_LEAST,
    drivers::single_connection::Alone,
};

/// Looks after the table of an inbox over a connection of its own, and finds out which variant it is: what
/// `semel purge --inbox` does.
#[derive(Debug)]
pub struct InboxKeeper(PgInbox<Alone>);

impl InboxKeeper {
    /// The shortest retention of an inbox.
    pub const RETENTION_AT_LEAST: Duration = RETENTION_AT_LEAST;

    /// Looks after the inbox in `table`, which is `[SCHEMA.]TABLE`, over the connection that `connecting` opens.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] when the table is not there or is not that of an inbox, and when the retention is too
    /// short; else as `connecting`.
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
        let alone = Alone::new(connecting.await?);
        let variant = variant_of(&alone, &names).await?;
        let builder = PgInbox::builder(alone).schema(schema).table(table).variant(variant);
        Ok(Self(builder.operator().retention(retention).build().await?))
    }

    /// Which variant the table is.
    #[must_use]
    pub fn variant(&self) -> InboxVariant {
        self.0.about.variant
    }

    /// The table, with its schema.
    #[must_use]
    pub fn table(&self) -> String {
        self.0.table()
    }

    /// As [`PgInbox::upkeep`], for all consumers.
    ///
    /// # Errors
    ///
    /// When the server fails or the role may not, and when the retention is shorter than the source's window that is noted
    /// on the table, or than a week where none is.
    pub async fn upkeep(&self) -> Result<Upkeep> {
        self.0.upkeep().await
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

async fn variant_of(pool: &impl InboxPool, names: &InboxTable) -> Result<InboxVariant> {
    let look = "SELECT json_build_array(c.relkind, c.relispartition, (
           SELECT coalesce(json_agg(a.attname), '[]') FROM pg_attribute AS a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
         FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1::text AND c.relname = $2::text";
    let (schema, table) = (&names.schema, &names.name);
    let Some(said) = pool.ask(look, &[schema, table]).await? else {
        return Err(Error::invalid(format!(
            "there is no table {schema}.{table} in this database; name the table of an inbox as \
             [SCHEMA.]TABLE, or make it with `inbox.install()`"
        )));
    };
    let odd = |_| Error::new(ErrorKind::Corrupt, "inbox: odd columns");
    let (kind, is_part, columns): (char, bool, Vec<String>) =
        serde_json::from_str(&said).map_err(odd)?;
    if is_part {
        return Err(Error::invalid(format!(
            "{schema}.{table} is a partition; name the table that it is a part of"
        )));
    }
    let has = |wanted: &[&str]| wanted.iter().all(|it| columns.iter().any(|has| has == it));
    let is_inbox = has(&["event_id", "event_type", "processed_at"]);
    match (is_inbox, kind, has(&["consumer", "occurred_on", "outcome"])) {
        (true, 'p', true) => Ok(InboxVariant::Partitioned),
        (true, 'r', true) => Ok(InboxVariant::Full),
        (true, 'r', false) => Ok(InboxVariant::Minimal),
        _ => Err(Error::invalid(format!(
            "{schema}.{table} is not the table of an inbox, and nothing of it was touched; name one that \
             `inbox.install()` made"
        ))),
    }
}
