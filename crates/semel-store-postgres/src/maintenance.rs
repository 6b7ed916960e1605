//! Background tasks and whatever else is not a step of a key, on two connections of their own: statistics, election,
//! and the statements of `list`, `purge` and `failback_window`.

use std::{sync::Arc, time::Duration};

use semel_core::{KeyHash, Result, Span, State, Stats};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};
use tokio_postgres::Row;

use crate::{
    connection::{
        ConnectionPurpose, Params, PgConnection, retry_conflicts, within_connect_timeout,
    },
    error::{StatementError, timed_out},
    meta,
    settings::PgSettings,
    sql_types::span_to_sql,
    value::state_code,
};

/// Runs the statements of maintenance.
#[derive(Debug)]
pub(crate) struct PgMaintenance {
    settings: Arc<PgSettings>,
    /// The id of this process in the election.
    holder: [u8; 16],
    main: MaintenanceConnection,
    /// For a short statement that a caller waits for while the main connection is busy. Connects when it is
    /// first needed.
    spare: MaintenanceConnection,
}

/// A connection that runs one statement at a time.
#[derive(Debug)]
struct MaintenanceConnection {
    settings: Arc<PgSettings>,
    connection: Mutex<Option<PgConnection>>,
}

/// Up to this many records are counted; beyond, the server's estimate is used.
const COUNT_LIMIT: i64 = 10_000;

impl MaintenanceConnection {
    async fn query(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        self.query_over(self.connection.lock().await, statement, params).await
    }

    async fn query_over(
        &self,
        mut slot: MutexGuard<'_, Option<PgConnection>>,
        statement: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>> {
        let connection = match slot.take().filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let attempt = retry_conflicts(|| async {
            let rows = connection.client.query(statement, params).await;
            rows.map_err(|error| StatementError::from(error).locked_as_retry())
        });
        let rows = match timeout(self.settings.maintenance_timeout(), attempt).await {
            Ok(rows) => rows,
            Err(_) => Err(StatementError::Lost(timed_out())),
        };
        if !matches!(rows, Err(StatementError::Lost(_))) {
            *slot = Some(connection);
        }
        rows.map_err(StatementError::into_error)
    }

    async fn connect(&self) -> Result<PgConnection> {
        let connection = PgConnection::open(&self.settings, ConnectionPurpose::Maintenance).await?;
        within_connect_timeout(&self.settings, meta::check_and_settle(&connection, &self.settings))
            .await?;
        Ok(connection)
    }
}

impl PgMaintenance {
    pub(crate) fn new(settings: Arc<PgSettings>, connection: PgConnection) -> Self {
        let of = |connection| MaintenanceConnection { settings: settings.clone(), connection };
        let (main, spare) = (of(Mutex::new(Some(connection))), of(Mutex::default()));
        Self { settings, holder: rand::random(), main, spare }
    }

    /// Runs one statement, after those before it.
    pub(crate) async fn query(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        self.main.query(statement, params).await
    }

    /// Runs one short statement within the call timeout, over the connection that is free.
    pub(crate) async fn query_now(&self, statement: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        let querying = async {
            match self.main.connection.try_lock() {
                Ok(slot) => self.main.query_over(slot, statement, params).await,
                Err(_) => self.spare.query(statement, params).await,
            }
        };
        let rows = timeout(self.settings.call_timeout, querying).await;
        rows.unwrap_or_else(|_| Err(timed_out()))
    }

    pub(crate) fn settings(&self) -> &PgSettings {
        &self.settings
    }

    /// Notifies other nodes that a key changed, and returns when the server has the notification.
    pub(crate) async fn notify(&self, key: &KeyHash) -> Result<()> {
        let channel = self.settings.names.channel();
        let notify = "SELECT pg_notify($1, $2)::text";
        self.query_now(notify, &[&channel, &key.to_hex()]).await.map(drop)
    }

    /// True when this process does the maintenance for all processes during `term`.
    pub(crate) async fn lead(&self, term: Duration) -> Result<bool> {
        let meta = self.settings.names.meta();
        let lead = format!(
            "INSERT INTO {meta} AS m (name, holder, until)
             VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
             WHERE m.holder = excluded.holder OR m.until IS NULL OR m.until <= clock_timestamp()
             RETURNING name"
        );
        // A longer term is a mistake: if the leader then stopped, no process would purge for that long.
        let term = span_to_sql(Span::from(term)).min(86_400_000);
        let rows = self.query(&lead, &[&meta::CLEANUP, &self.holder.as_slice(), &term]).await?;
        Ok(!rows.is_empty())
    }

    pub(crate) async fn stats(&self) -> Result<Stats> {
        let records = self.settings.names.records();
        let [unknown, dead] = [State::Unknown, State::Dead].map(state_code);
        let count = format!(
            "SELECT (SELECT count(*) FROM (SELECT FROM {records} LIMIT {COUNT_LIMIT} + 1) AS counted),
               (SELECT reltuples::bigint FROM pg_class WHERE oid = $1::text::regclass),
               (SELECT count(*) FROM {records} WHERE state = {unknown}),
               (SELECT count(*) FROM {records} WHERE state = {dead})"
        );
        let rows = self.query(&count, &[&records]).await?;
        let number =
            |column: usize| rows.first().and_then(|row| row.try_get::<_, i64>(column).ok());
        let number = |column: usize| number(column).unwrap_or(0).max(0);
        let records = if number(0) > COUNT_LIMIT { number(0).max(number(1)) } else { number(0) };
        let [records, unknown, dead] = [records, number(2), number(3)].map(i64::unsigned_abs);
        Ok(Stats { records, unknown, dead })
    }
}
