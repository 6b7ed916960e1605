//! A pool of one connection, for an operator that maintains a table and processes no events.

use std::{fmt, ops::Deref, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_postgres::Client;

use crate::{
    drivers::tokio_postgres::query_text,
    transaction::{InboxPool, InboxTransaction, InboxTx, TxError},
};

/// `None` after a transaction was dropped half-way: its connection is closed, so the server rolls it back.
#[derive(Clone)]
pub(crate) struct SingleConnection(Arc<Mutex<Option<DynClient>>>);

type DynClient = Box<dyn Deref<Target = Client> + Send + Sync>;

/// The connection, for the time of one transaction or statement.
pub(crate) struct SingleConnectionTx(Option<OwnedMutexGuard<Option<DynClient>>>);

impl SingleConnection {
    pub(crate) fn new(connection: impl Deref<Target = Client> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(connection)))))
    }

    async fn take(&self) -> SingleConnectionTx {
        SingleConnectionTx(Some(self.0.clone().lock_owned().await))
    }
}

impl SingleConnectionTx {
    fn client(&self) -> Result<&Client, TxError> {
        let connection = self.0.as_ref().and_then(|it| it.as_ref());
        let closed = || {
            TxError::new(
                None,
                "the connection is closed, because an earlier statement was interrupted",
            )
        };
        connection.map(|it| &***it).ok_or_else(closed)
    }

    async fn end(mut self, statements: &str) -> Result<(), TxError> {
        self.client()?.batch_execute(statements).await?;
        drop(self.0.take());
        Ok(())
    }
}

impl fmt::Debug for SingleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleConnection").finish_non_exhaustive()
    }
}

impl Drop for SingleConnectionTx {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            **connection = None;
        }
    }
}

impl InboxTx for SingleConnectionTx {
    async fn query_text(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        query_text(self.client()?, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        Ok(self.client()?.batch_execute(statements).await?)
    }
}

impl InboxTransaction for SingleConnectionTx {
    async fn commit(self) -> Result<(), TxError> {
        self.end("RELEASE SAVEPOINT semel; COMMIT").await
    }

    async fn roll_back(self) -> Result<(), TxError> {
        self.end("ROLLBACK").await
    }
}

impl InboxPool for SingleConnection {
    type Tx = SingleConnectionTx;

    async fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> Result<(SingleConnectionTx, Option<String>), TxError> {
        let mut tx = self.take().await;
        tx.run(begin).await?;
        let reply = tx.query_text(statement, parameters).await?;
        Ok((tx, reply))
    }

    /// Without a transaction: the connection stays usable even if the statement fails.
    async fn run(&self, statement: &str) -> Result<(), TxError> {
        let mut tx = self.take().await;
        let done = InboxTx::run(&mut tx, statement).await;
        drop(tx.0.take());
        done
    }

    async fn query_text(
        &self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        let mut tx = self.take().await;
        let reply = InboxTx::query_text(&mut tx, statement, parameters).await;
        drop(tx.0.take());
        reply
    }
}
