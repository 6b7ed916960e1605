//! The inbox over sqlx.

use std::ops::{Deref, DerefMut};

use sqlx::{
    AssertSqlSafe, Error as Driver, Executor, PgConnection, PgPool, Postgres, Row, SqlSafeStr,
    Transaction, pool::PoolConnection, postgres::PgTransactionManager,
};
use sqlx_core::transaction::TransactionManager;

use crate::transaction::{InboxPool, InboxTransaction, InboxTx, TxError};

pub(crate) fn sqlstate(error: &Driver) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

impl From<Driver> for TxError {
    fn from(error: Driver) -> Self {
        match error {
            Driver::PoolTimedOut => Self::no_connection(error),
            error => Self::new(sqlstate(&error), error),
        }
    }
}

async fn query_text(
    connection: &mut PgConnection,
    statement: &str,
    parameters: &[&str],
) -> Result<Option<String>, TxError> {
    let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
    let query =
        parameters.iter().fold(query, |query, parameter| query.bind((*parameter).to_owned()));
    let row = query.fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}

async fn run(connection: &mut PgConnection, statements: &str) -> Result<(), TxError> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))).await?;
    Ok(())
}

impl InboxTx for PgConnection {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

impl InboxTx for Transaction<'_, Postgres> {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

/// A transaction on a connection of the pool. It is a [`PgConnection`]: `query.execute(&mut **tx)`.
#[derive(Debug)]
pub struct SqlxTx(PoolConnection<Postgres>);

/// Rolls back a transaction that was not ended, before the connection returns to the pool.
impl Drop for SqlxTx {
    fn drop(&mut self) {
        PgTransactionManager::start_rollback(&mut self.0);
    }
}

/// A connection whose transaction is beginning. sqlx counts a transaction as open once `BEGIN` has succeeded. If it
/// fails half-way, or the call is dropped before, this closes the connection instead of returning it to the pool in the
/// middle of a transaction.
struct BeginGuard(Option<PoolConnection<Postgres>>);

impl BeginGuard {
    async fn begun(mut self, begin: &'static str) -> Result<SqlxTx, Driver> {
        let connection =
            self.0.as_mut().expect("the connection is there until the transaction has begun");
        PgTransactionManager::begin(connection, Some(begin.into_sql_str())).await?;
        Ok(SqlxTx(self.0.take().expect("the connection is there until the transaction has begun")))
    }
}

impl Drop for BeginGuard {
    fn drop(&mut self) {
        if let Some(mut connection) = self.0.take() {
            connection.close_on_drop();
        }
    }
}

impl Deref for SqlxTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for SqlxTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

impl InboxTx for SqlxTx {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

impl InboxTransaction for SqlxTx {
    async fn commit(mut self) -> Result<(), TxError> {
        // RELEASE fails if a statement of the transaction has failed. A COMMIT alone would then roll back and report
        // success.
        run(&mut self, "RELEASE SAVEPOINT semel").await?;
        Ok(PgTransactionManager::commit(&mut self.0).await?)
    }

    async fn roll_back(mut self) -> Result<(), TxError> {
        Ok(PgTransactionManager::rollback(&mut self.0).await?)
    }
}

impl InboxPool for PgPool {
    type Tx = SqlxTx;

    async fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> Result<(Self::Tx, Option<String>), TxError> {
        let mut tx = BeginGuard(Some(self.acquire().await?)).begun(begin).await?;
        let reply = query_text(&mut tx, statement, parameters).await?;
        Ok((tx, reply))
    }

    async fn run(&self, statement: &str) -> Result<(), TxError> {
        let mut connection = self.acquire().await?;
        run(&mut connection, statement).await
    }

    async fn query_text(
        &self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        let mut connection = self.acquire().await?;
        query_text(&mut connection, statement, parameters).await
    }
}
