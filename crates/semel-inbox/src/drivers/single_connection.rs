//! A pool of one connection: for who looks after a table and handles no events.

use std::{fmt, ops::Deref, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_postgres::Client;

use crate::{
    drivers::tokio_postgres::ask,
    transaction::{InboxPool, InboxTransaction, InboxTx, TxError},
};

/// None once a transaction was left half done: without its connection the server rolls it back.
#[derive(Clone)]
pub(crate) struct Alone(Arc<Mutex<Option<Connection>>>);

type Connection = Box<dyn Deref<Target = Client> + Send + Sync>;

/// The connection, for as long as this has it.
pub(crate) struct AloneTx(Option<OwnedMutexGuard<Option<Connection>>>);

impl Alone {
    pub(crate) fn new(connection: impl Deref<Target = Client> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(connection)))))
    }

    async fn taken(&self) -> AloneTx {
        AloneTx(Some(self.0.clone().lock_owned().await))
    }
}

impl AloneTx {
    fn client(&self) -> Result<&Client, TxError> {
        let connection = self.0.as_ref().and_then(|it| it.as_ref());
        let gone = || TxError::new(None, "a statement before this one was broken off");
        connection.map(|it| &***it).ok_or_else(gone)
    }

    async fn end(mut self, statements: &str) -> Result<(), TxError> {
        self.client()?.batch_execute(statements).await?;
        drop(self.0.take());
        Ok(())
    }
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl Drop for AloneTx {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            **connection = None;
        }
    }
}

impl InboxTx for AloneTx {
    async fn ask(
        &mut self,
        statement: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TxError> {
        ask(self.client()?, statement, parameters).await
    }

    async fn run(&mut self, statements: &str) -> Result<(), TxError> {
        Ok(self.client()?.batch_execute(statements).await?)
    }
}

impl InboxTransaction for AloneTx {
    async fn commit(self) -> Result<(), TxError> {
        self.end("RELEASE SAVEPOINT semel; COMMIT").await
    }

    async fn roll_back(self) -> Result<(), TxError> {
        self.end("ROLLBACK").await
    }
}

impl InboxPool for Alone {
    type Tx = AloneTx;

    async fn begin(
        &self,
        begin: &'static str,
        statement: &str,
        parameters: &[&str],
    ) -> Result<(AloneTx, Option<String>), TxError> {
        let mut tx = self.taken().await;
        tx.run(begin).await?;
        let said = tx.ask(statement, parameters).await?;
        Ok((tx, said))
    }

    /// A statement that fails outside of a transaction leaves nothing behind.
    async fn run(&self, statement: &str) -> Result<(), TxError> {
        let mut tx = self.taken().await;
        let done = InboxTx::run(&mut tx, statement).await;
        drop(tx.0.take());
        done
    }

    async fn ask(&self, statement: &str, parameters: &[&str]) -> Result<Option<String>, TxError> {
        let mut tx = self.taken().await;
        let said = InboxTx::ask(&mut tx, statement, parameters).await;
        drop(tx.0.take());
        said
    }
}
