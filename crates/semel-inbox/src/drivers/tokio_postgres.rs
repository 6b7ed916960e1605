//! The inbox over tokio-postgres: a transaction of the user's own, and the pool deadpool-postgres.

use tokio_postgres::{
    Client, Error as Driver, Transaction,
    types::{ToSql, Type},
};

use crate::transaction::{InboxTx, TxError};

impl From<Driver> for TxError {
    fn from(error: Driver) -> Self {
        let code = error.code().map(|code| code.code().to_owned());
        Self::new(code, error)
    }
}

/// Unnamed statements: one trip, and nothing is left on a connection that a proxy may share.
pub(crate) async fn ask(
    client: &Client,
    statement: &str,
    parameters: &[&str],
) -> Result<Option<String>, TxError> {
    let typed: Vec<(&(dyn ToSql + Sync), Type)> =
        parameters.iter().map(|it| (it as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = client.query_typed(statement, &typed).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

impl InboxTx for Transaction<'_> {
    async fn ask(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        ask(self.client(), statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        Ok(self.batch_execute(statements).await?)
    }
}

#[cfg(feature = "deadpool")]
pub use pooled::DeadpoolTx;

#[cfg(feature = "deadpool")]
mod pooled {
    use std::{fmt, ops::Deref};

    use deadpool_postgres::{ClientWrapper, Object, Pool, PoolError};
    use tokio_postgres::types::{ToSql, Type};

    use crate::transaction::{InboxPool, InboxTransaction, InboxTx, TxError};

    /// A transaction on a connection of the pool. It is a client for everything but transactions: for a
    /// savepoint, say `SAVEPOINT`.
    pub struct DeadpoolTx(Option<Object>);

    impl Deref for DeadpoolTx {
        type Target = ClientWrapper;

        fn deref(&self) -> &ClientWrapper {
            self.0.as_ref().expect("it is there until it ends")
        }
    }

    impl fmt::Debug for DeadpoolTx {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("DeadpoolTx").finish_non_exhaustive()
        }
    }

    /// In the middle of a transaction a connection is of no use to anybody else: it is closed, and the server
    /// rolls back.
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

    /// Prepared once on each connection, as the pool's users prepare theirs.
    async fn ask(
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
        async fn ask(
            &mut self,
            statement: &str,
            parameters: &[&str],
        ) -> Result<Option<String>, TxError> {
            ask(self, statement, parameters).await
        }

        async fn run(&mut self, statements: &str) -> Result<(), TxError> {
            Ok(self.batch_execute(statements).await?)
        }
    }

    impl InboxTransaction for DeadpoolTx {
        async fn commit(self) -> Result<(), TxError> {
            // Fails in a transaction of which a statement failed, where a COMMIT alone would be a ROLLBACK
            // that reports success.
            self.end("RELEASE SAVEPOINT semel; COMMIT").await
        }

        async fn roll_back(self) -> Result<(), TxError> {
            self.end("ROLLBACK").await
        }
    }

    async fn taken(pool: &Pool) -> Result<DeadpoolTx, TxError> {
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
            let tx = taken(self).await?;
            // Sent together, in this order: the second waits for no answer to the first, and does nothing if that
            // has failed.
            let (began, said) =
                tokio::join!(biased; tx.batch_execute(begin), ask(&tx, statement, parameters));
            match began.map_err(TxError::from).and(said) {
                Ok(said) => Ok((tx, said)),
                Err(error) => {
                    if error.is_refusal() {
                        let _ = tx.roll_back().await;
                    }
                    Err(error)
                }
            }
        }

        async fn run(&self, statement: &str) -> Result<(), TxError> {
            taken(self).await?.end(statement).await
        }

        async fn ask(
            &self,
            statement: &str,
            parameters: &[&str],
        ) -> Result<Option<String>, TxError> {
            let mut tx = taken(self).await?;
            let said = ask(&tx, statement, parameters).await?;
            drop(tx.0.take());
            Ok(said)
        }
    }
}
