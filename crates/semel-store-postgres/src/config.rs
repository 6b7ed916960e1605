//! The builder of the store: its options and their defaults.

use std::{fmt, ops::RangeInclusive, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result};
use semel_remote::batch::BatchLimits;

use crate::{
    Migration, PostgresStore, check,
    connection::{ConnectionPurpose, PgConnection},
    migrate,
    pooler::refuse_shared_pool,
    settings::PgSettings,
    store::run_in_background,
};

/// Settings of a [`PostgresStore`].
#[derive(Clone)]
#[must_use]
pub struct PostgresStoreBuilder {
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
    pub(crate) call_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) secret: Option<HashSecret>,
    pub(crate) migrate: bool,
    pub(crate) skip_setup: bool,
}

impl PostgresStoreBuilder {
    /// The default schema.
    pub const SCHEMA: &str = "semel";
    /// The default table.
    pub const TABLE: &str = "idempotency_keys";
    /// Connections for the runtime that makes most calls. The background runtime has half as many; maintenance and the
    /// change feed have one each.
    pub const CONNECTIONS: usize = 4;
    /// The most calls that share a statement.
    pub const BATCH: usize = 1000;
    /// How long a call may take once a connection has it.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long a call waits for a record that another transaction has locked.
    pub const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            schema: Self::SCHEMA.to_owned(),
            table: Self::TABLE.to_owned(),
            connections: Self::CONNECTIONS,
            limits: BatchLimits { batch: Self::BATCH, ..BatchLimits::default() },
            call_timeout: Self::CALL_TIMEOUT,
            lock_timeout: Self::LOCK_TIMEOUT,
            secret: None,
            migrate: false,
            skip_setup: false,
        }
    }

    /// Sets the schema: 1 to 48 characters of a-z, 0-9 and `_`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the table: 1 to 48 characters of a-z, 0-9 and `_`. Its companion has `_meta` at the end.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how many connections serve the runtime that makes most calls, which is also the most batches under way.
    /// The background runtime has half as many, for renewals and for calls of other runtimes or from outside of tasks.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the most calls that share a statement.
    pub const fn batch(mut self, limit: usize) -> Self {
        self.limits.batch = limit;
        self
    }

    /// Sets how long a call may take once a connection has it.
    pub const fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets how long a call waits for a record that another transaction has locked, such as one left open in psql.
    /// Calls of other keys do not wait for it.
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Keys all hashes. Every process on this table must be given the same secret, or none.
    pub fn hash_secret(mut self, secret: HashSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Writes neither the hash secret nor the identity of the table if no process has written them, and does not extend
    /// a failback window. For a process that claims no keys, such as an operator's command.
    pub const fn skip_setup(mut self, skip_setup: bool) -> Self {
        self.skip_setup = skip_setup;
        self
    }

    /// Sets whether connecting applies pending migrations. That needs the right to create tables, but only if a
    /// migration is pending.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Checks the settings without connecting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.check().map(drop)
    }

    /// Connects. The runtime that makes most calls gets its own connections after its 32nd call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for a setting out of range, a refused
    /// login, a replica, tables that are missing or out of date, or a hash secret that differs from the one the
    /// table was first used with; [`ErrorKind::Unsupported`](semel_core::ErrorKind::Unsupported) for tables of a
    /// newer semel; [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when the server does not
    /// answer.
    pub async fn connect(self) -> Result<PostgresStore> {
        let settings = self.check()?;
        run_in_background(PostgresStore::open(self, settings)).await?
    }

    /// Applies the pending migrations and returns them.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`], and when the role may not make tables.
    pub async fn apply_migrations(self) -> Result<Vec<Migration>> {
        let settings = self.check()?;
        run_in_background(migrate::apply_to(settings)).await?
    }

    /// The migrations that are not applied yet.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn pending_migrations(self) -> Result<Vec<Migration>> {
        let settings = self.check()?;
        run_in_background(migrate::pending_on(settings)).await?
    }

    /// Checks the server and the tables without changing them, and returns what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for settings out of range: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let settings = self.check()?;
        run_in_background(check::check(settings)).await
    }

    /// Opens one connection for maintenance of other tables, such as an inbox's. The table of the store is not
    /// read.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    #[doc(hidden)]
    pub async fn maintenance_connection(self) -> Result<PgConnection> {
        let settings = self.check()?;
        // Boxed: these futures are large, and the caller's future holds them.
        Box::pin(refuse_shared_pool(&settings)).await?;
        Box::pin(PgConnection::open(&settings, ConnectionPurpose::Maintenance)).await
    }

    fn check(&self) -> Result<PgSettings> {
        let sane = Duration::from_millis(1)..=Duration::from_secs(3600);
        in_range("connections", &self.connections, 1..=1000)?;
        in_range("batch", &self.limits.batch, 1..=10_000)?;
        in_range("call_timeout", &self.call_timeout, sane.clone())?;
        in_range("lock_timeout", &self.lock_timeout, sane)?;
        PgSettings::new(self)
    }
}

fn in_range<T: PartialOrd + fmt::Debug>(
    name: &str,
    value: &T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Error::invalid(format!(
        "postgres: {name} is {value:?}; it must be from {least:?} to {most:?}"
    )))
}

/// Without the URL: it may hold a password.
impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_as_documented() {
        let builder = PostgresStoreBuilder::new(String::new());
        assert_eq!(
            (builder.schema.as_str(), builder.table.as_str()),
            ("semel", "idempotency_keys")
        );
        assert_eq!((builder.connections, builder.limits.batch), (4, 1000));
        assert_eq!(builder.call_timeout, Duration::from_secs(5));
        assert_eq!(builder.lock_timeout, Duration::from_secs(1));
        assert!(builder.secret.is_none() && !builder.migrate);
    }

    #[test]
    fn the_url_is_not_printed() {
        let builder = PostgresStoreBuilder::new("postgres://u:canary@h/d".to_owned());
        let settings = builder.check().unwrap();
        assert!(!format!("{builder:?} {settings:?}").contains("canary"));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let builder = || PostgresStoreBuilder::new("postgres://u@h/d".to_owned());
        for (name, builder) in [
            ("connections", builder().connections(0)),
            ("batch", builder().batch(0)),
            ("call_timeout", builder().call_timeout(Duration::ZERO)),
            ("lock_timeout", builder().lock_timeout(Duration::ZERO)),
            ("schema", builder().schema("a\"b")),
            ("table", builder().table("")),
        ] {
            assert!(builder.check().unwrap_err().to_string().contains(name), "{name}");
        }
    }
}
