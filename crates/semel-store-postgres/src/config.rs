//! Settings of the store.

use std::{fmt, ops::RangeInclusive, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result};
use semel_remote::batch::BatchLimits;

use crate::{
    Migration, PostgresStore, check,
    connection::{Purpose, Session},
    migrate,
    pooler::refuse_shared,
    settings::Settings,
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
    pub(crate) look_only: bool,
}

impl PostgresStoreBuilder {
    /// The schema unless asked otherwise.
    pub const SCHEMA: &str = "semel";
    /// The table unless asked otherwise.
    pub const TABLE: &str = "idempotency_keys";
    /// Connections for the runtime that makes most calls; half as many are semel's own, and two for chores and news.
    pub const CONNECTIONS: usize = 4;
    /// Calls that share a statement at most.
    pub const BATCH: usize = 1000;
    /// How long a call may take once a connection has it.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long a call waits for a record that somebody else has locked.
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
            look_only: false,
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

    /// Sets how many connections take the calls of the runtime that makes most: as many batches are under way at most.
    /// Half as many are semel's own, for renewals, and for the calls of other runtimes and from outside of tasks.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how many calls share a statement at most.
    pub const fn batch(mut self, limit: usize) -> Self {
        self.limits.batch = limit;
        self
    }

    /// Sets how long a call may take once a connection has it.
    pub const fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets how long a call waits for a record that somebody else has locked, such as an open transaction
    /// of psql. Other calls do not wait for it.
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Keys all hashes. Every process on this table must be given the same secret, or none.
    pub fn hash_secret(mut self, secret: HashSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// For who looks and claims nothing: where no process has settled the secret yet, it stays open.
    pub const fn look_only(mut self, look_only: bool) -> Self {
        self.look_only = look_only;
        self
    }

    /// Sets whether connecting brings the tables up to date. That needs the right to make them, but only
    /// when there is something to do.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Looks at the settings alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.check().map(drop)
    }

    /// Opens semel's own connections. A runtime that calls often gets its own after its 32nd call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for a setting out of range, a refused
    /// login, a replica, tables that are missing or out of date, or a hash secret that differs from the
    /// fleet's; [`ErrorKind::Unsupported`](semel_core::ErrorKind::Unsupported) for tables of a newer
    /// semel; [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when the server does not
    /// answer.
    pub async fn connect(self) -> Result<PostgresStore> {
        let settings = self.check()?;
        run_in_background(PostgresStore::open(self, settings)).await?
    }

    /// Brings the tables up to date and says what it took.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`], and when the role may not make tables.
    pub async fn apply_migrations(self) -> Result<Vec<Migration>> {
        let settings = self.check()?;
        run_in_background(migrate::apply_to(settings)).await?
    }

    /// The migrations that are still to be applied.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn pending_migrations(self) -> Result<Vec<Migration>> {
        let settings = self.check()?;
        run_in_background(migrate::pending_on(settings)).await?
    }

    /// Looks at the server and the tables, changes nothing, and says what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for settings out of range: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let settings = self.check()?;
        run_in_background(check::look(settings)).await
    }

    /// Opens one connection for maintenance of other tables, such as an inbox's. The table of the store is not
    /// read.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    #[doc(hidden)]
    pub async fn maintenance_connection(self) -> Result<Session> {
        let settings = self.check()?;
        refuse_shared(&settings).await?;
        Session::open(&settings, Purpose::Chores).await
    }

    fn check(&self) -> Result<Settings> {
        let sane = Duration::from_millis(1)..=Duration::from_secs(3600);
        in_range("connections", &self.connections, 1..=1000)?;
        in_range("batch", &self.limits.batch, 1..=10_000)?;
        in_range("call_timeout", &self.call_timeout, sane.clone())?;
        in_range("lock_timeout", &self.lock_timeout, sane)?;
        Settings::new(self)
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
