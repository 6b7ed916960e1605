//! A connection for requests, with its statements prepared.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use rand::RngExt;
use semel_core::{Error, ErrorKind, Result};
use tokio_postgres::{Row, Statement, types::ToSql};

use super::{ConnectionPurpose, PgConnection, within_connect_timeout};
use crate::{
    error::{StatementError, explain},
    meta,
    settings::PgSettings,
    sql,
};

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct PreparedConnection {
    pub(crate) inner: PgConnection,
    pub(crate) statements: PgStatements,
    /// Most of the last claims met an existing record.
    duplicates: AtomicBool,
    /// The `lock_timeout` that is set on the server, and its upper bound.
    lock_timeout: Mutex<Duration>,
    max_lock_timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct PgStatements {
    pub(crate) claim_one: Statement,
    pub(crate) claim_many: Statement,
    pub(crate) complete: Statement,
    pub(crate) renew: Statement,
    pub(crate) read: Statement,
    pub(crate) read_large: Statement,
    pub(crate) insert: Statement,
    pub(crate) update: Statement,
    pub(crate) delete: Statement,
    pub(crate) mark_waited: Statement,
    pub(crate) locked: Statement,
    pub(crate) probe_insert: Statement,
}

pub(crate) type Params<'a> = [&'a (dyn ToSql + Sync)];

impl PreparedConnection {
    /// How often a statement is tried that fails with a deadlock or a conflict.
    const TRIES: u32 = 4;

    /// How long a statement waits for a lock. All requests of its batch wait with it.
    pub(crate) const BATCH_LOCK_TIMEOUT: Duration = Duration::from_millis(25);

    /// The shortest lock timeout that the server accepts.
    pub(crate) const MIN_LOCK_TIMEOUT: Duration = Duration::from_millis(1);

    pub(crate) async fn open(settings: &PgSettings) -> Result<Self> {
        let inner = PgConnection::open(settings, ConnectionPurpose::Requests).await?;
        within_connect_timeout(settings, meta::check_and_settle(&inner, settings)).await?;
        let statements = within_connect_timeout(settings, prepare(&inner, settings)).await?;
        let max_lock_timeout = settings.lock_timeout;
        let (duplicates, lock_timeout) = (AtomicBool::new(false), Mutex::new(max_lock_timeout));
        let connection = Self { inner, statements, duplicates, lock_timeout, max_lock_timeout };
        let setting = connection.set_lock_timeout(Self::BATCH_LOCK_TIMEOUT);
        within_connect_timeout(settings, setting).await?;
        Ok(connection)
    }

    /// Sets how long the next statements wait for a lock, at most the configured lock timeout. Costs a round trip
    /// only if the value changes.
    ///
    /// # Errors
    ///
    /// The connection must not be used again.
    pub(crate) async fn set_lock_timeout(&self, timeout: Duration) -> Result<()> {
        let timeout = timeout.min(self.max_lock_timeout);
        let current = || self.lock_timeout.lock().unwrap_or_else(PoisonError::into_inner);
        if *current() == timeout {
            return Ok(());
        }
        let set = format!("SET lock_timeout = {}", timeout.as_millis());
        self.inner.client.batch_execute(&set).await.map_err(|error| explain(&error))?;
        *current() = timeout;
        Ok(())
    }

    /// True when the next claim is likely to meet an existing record. The statement for many claims returns that
    /// record in the same round trip; the plain insert for one claim does not.
    pub(crate) fn expects_duplicates(&self) -> bool {
        self.duplicates.load(Ordering::Relaxed)
    }

    pub(crate) fn expect_duplicates(&self, expected: bool) {
        self.duplicates.store(expected, Ordering::Relaxed);
    }

    pub(crate) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StatementError> {
        let client = &self.inner.client;
        retry_conflicts(|| async { Ok(client.query(statement, params).await?) }).await
    }

    pub(crate) async fn execute(
        &self,
        statement: &Statement,
        params: &Params<'_>,
    ) -> Result<u64, StatementError> {
        let client = &self.inner.client;
        retry_conflicts(|| async { Ok(client.execute(statement, params).await?) }).await
    }
}

/// Repeats a statement that failed with a conflict, a few times. Each failed try was a transaction that left
/// nothing behind.
pub(crate) async fn retry_conflicts<T, F>(attempt: impl Fn() -> F) -> Result<T, StatementError>
where
    F: Future<Output = Result<T, StatementError>>,
{
    for tries in 1.. {
        match attempt().await {
            Err(StatementError::Retry(error)) if tries >= PreparedConnection::TRIES => {
                return Err(StatementError::Failed(error));
            }
            Err(StatementError::Retry(error)) => {
                tracing::debug!(%error, "postgres: a conflict, trying again");
                let longest = 5 << tries;
                let pause = rand::rng().random_range(1..=longest);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            other => return other,
        }
    }
    unreachable!("the last try returns")
}

async fn prepare(connection: &PgConnection, settings: &PgSettings) -> Result<PgStatements> {
    let names = &settings.names;
    let texts = [
        sql::claim_one(names),
        sql::claim_many(names),
        sql::complete(names),
        sql::renew(names),
        sql::read(names),
        sql::read_large(names),
        sql::insert(names),
        sql::update(names),
        sql::delete(names),
        sql::mark_waited(names),
        sql::locked(names),
        sql::probe_insert(names),
    ];
    let prepared = try_join_all(texts.iter().map(|text| connection.client.prepare(text))).await;
    let prepared: [Statement; 12] = prepared
        .map_err(|error| explain(&error))?
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Unavailable, "postgres: a statement is missing"))?;
    let [
        claim_one,
        claim_many,
        complete,
        renew,
        read,
        read_large,
        insert,
        update,
        delete,
        mark_waited,
        locked,
        probe_insert,
    ] = prepared;
    Ok(PgStatements {
        claim_one,
        claim_many,
        complete,
        renew,
        read,
        read_large,
        insert,
        update,
        delete,
        mark_waited,
        locked,
        probe_insert,
    })
}
