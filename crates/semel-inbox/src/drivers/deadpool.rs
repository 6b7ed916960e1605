//! The inbox over deadpool-postgres.

use std::{fmt, ops::Deref};

use deadpool_postgres::{ClientWrapper, Object, Pool, PoolError};
use tokio_postgres::types::{ToSql, Type};

use crate::transaction::{InboxPool, InboxTransaction, InboxTx, TxError};

/// A transaction on a connection of the pool. It dereferences to the client for everything but transactions; for a
/// savepoint, run `SAVEPOINT`.
pub struct DeadpoolTx(Option<Object>);

impl Deref for DeadpoolTx {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.0.as_ref().expect("the connection is there until the transaction ends")
    }
}

impl fmt::Debug for DeadpoolTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadpoolTx").finish_non_exhaustive()
    }
}

/// A connection in the middle of a transaction must not return to the pool: it is closed, and the server rolls back.
impl Drop for DeadpoolTx {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

impl DeadpoolTx {
    async fn end(mut self, statements: &str) -> Result<(), TxError> {
        self.batch_execute(statements).await?;
        drop(self.0.take());
        Ok(())
    }
}

/// Prepares the statement once on each connection.
async fn query_text(
    client: &ClientWrapper,
    statement: &str,
    parameters: &[&str],
) -> Result<Option<String>, TxError> {
    let types = vec![Type::TEXT; parameters.len()];
    let statement = client.prepare_typed_cached(statement, &types).await?;
    let parameters: Vec<&(dyn ToSql + Sync)> =
        parameters.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
    let row = client.query_opt(&statement, &parameters).await?;
    Ok(row.and_then(|row| row.get(0)))
}

impl InboxTx for DeadpoolTx {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        Ok(self.batch_execute(statements).await?)
    }
}

impl InboxTransaction for DeadpoolTx {
    async fn commit(self) -> Result<(), TxError> {
        // RELEASE fails if a statement of the transaction has failed. A COMMIT alone would then roll back and report
        // success.
        self.end("RELEASE SAVEPOINT semel; COMMIT").await
    }

    async fn roll_back(self) -> Result<(), TxError> {
        self.end("ROLLBACK").await
    }
}

async fn take(pool: &Pool) -> Result<DeadpoolTx, TxError> {
    let object = pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => TxError::from(error),
        PoolError::Timeout(_) => TxError::no_connection(error),
        error => TxError::new(None, error),
    })?;
    Ok(DeadpoolTx(Some(object)))
}

impl InboxPool for Pool {
    type Tx = DeadpoolTx;

    async fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> Result<(DeadpoolTx, Option<String>), TxError> {
        let tx = take(self).await?;
        // Sent together, in this order. The second does not wait for the reply to the first, and does nothing if the
        // first fails.
        let (began, reply) =
            tokio::join!(biased; tx.batch_execute(begin), query_text(&tx, statement, parameters));
        match began.map_err(TxError::from).and(reply) {
            Ok(reply) => Ok((tx, reply)),
            Err(error) => {
                if error.is_refusal() {
                    let _ = tx.roll_back().await;
                }
                Err(error)
            }
        }
    }

    async fn run(&self, statement: &str) -> Result<(), TxError> {
        take(self).await?.end(statement).await
    }

    async fn query_text(
        &self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        let mut tx = take(self).await?;
        let reply = query_text(&tx, statement, parameters).await?;
        drop(tx.0.take());
        Ok(reply)
    }
}
