//! The inbox over sqlx.

use std::ops::{Deref, DerefMut};

use sqlx::{
    AssertSqlSafe, Error as Driver, Executor, PgConnection, PgPool, Postgres, Row, SqlSafeStr,
    Transaction, pool::PoolConnection, postgres::PgTransactionManager,
};
use sqlx_core::transaction::TransactionManager;

use crate::transaction::{InboxPool, InboxTransaction, InboxTx, TxError};

pub(crate) fn code_of(error: &Driver) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

impl From<Driver> for TxError {
    fn from(error: Driver) -> Self {
        match error {
            Driver::PoolTimedOut => Self::no_connection(error),
            error => Self::new(code_of(&error), error),
        }
    }
}

async fn ask(
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
    async fn ask(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        ask(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

impl InboxTx for Transaction<'_, Postgres> {
    async fn ask(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        ask(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

/// A transaction on a connection of the pool. It is a [`PgConnection`]: `query.execute(&mut **tx)`.
#[derive(Debug)]
pub struct SqlxTx(PoolConnection<Postgres>);

/// Rolls back what was not ended, before anybody else is given the connection.
impl Drop for SqlxTx {
    fn drop(&mut self) {
        PgTransactionManager::start_rollback(&mut self.0);
    }
}

/// A connection whose transaction begins. sqlx takes one for open when `BEGIN` was answered without an error: if that
/// fails half way, or is dropped before, the connection is closed, and not given back in the middle of one.
struct Beginning(Option<PoolConnection<Postgres>>);

impl Beginning {
    async fn begun(mut self, begin: &'static str) -> Result<SqlxTx, Driver> {
        let connection = self.0.as_mut().expect("it is there until it has begun");
        PgTransactionManager::begin(connection, Some(begin.into_sql_str())).await?;
        Ok(SqlxTx(self.0.take().expect("it is there until it has begun")))
    }
}

impl Drop for Beginning {
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
    async fn ask(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        ask(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        run(self, statements).await
    }
}

impl InboxTransaction for SqlxTx {
    async fn commit(mut self) -> Result<(), TxError> {
        // Fails in a transaction of which a statement failed, where a COMMIT alone would be a ROLLBACK that
        // reports success.
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
        let mut tx = Beginning(Some(self.acquire().await?)).begun(begin).await?;
        let said = ask(&mut tx, statement, parameters).await?;
        Ok((tx, said))
    }

    async fn run(&self, statement: &str) -> Result<(), TxError> {
        let mut connection = self.acquire().await?;
        run(&mut connection, statement).await
    }

    async fn ask(&self, statement: &str, parameters: &[&str]) -> Result<Option<String>, TxError> {
        let mut connection = self.acquire().await?;
        ask(&mut connection, statement, parameters).await
    }
}
