//! One connection, opened when it is needed and again after a loss.

use std::{future::Future, ops::Deref, pin::pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use semel_core::{Error, Result, background::timeout_with_grace};
use tokio::sync::Mutex;
use tokio_postgres::{
    Client, Error as DriverError, Row,
    types::{ToSql, Type},
};

use super::error::{self, Explain};

/// A client. Dropping the last handle ends its connection.
pub(super) type Connected = Arc<dyn Deref<Target = Client> + Send + Sync>;
/// Opens a connection.
pub(super) type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Connected>> + Send + Sync>;
/// A parameter of a statement and its type. With its types, a statement needs no round trip to be prepared.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) struct PgConnection {
    connect: Connect,
    call_timeout: Duration,
    explain: Explain,
    current: Mutex<Option<Connected>>,
}

/// Why an attempt at a statement failed.
enum AttemptError {
    /// The connection is lost; the statement may have run.
    Lost(Error),
    Failed(Error),
}

impl AttemptError {
    fn into_error(self) -> Error {
        match self {
            Self::Lost(error) | Self::Failed(error) => error,
        }
    }
}

/// Creating a table waits for other processes that create it.
const LONGEST: Duration = Duration::from_secs(60);
/// A login takes several round trips and a new process of the server.
const CONNECTING: Duration = Duration::from_secs(10);

impl PgConnection {
    pub(super) fn new(connect: Connect, call_timeout: Duration, explain: Explain) -> Self {
        Self { connect, call_timeout, explain, current: Mutex::new(None) }
    }

    /// Runs a statement, once more on a new connection if the first was lost: a connection that was idle for hours is
    /// often found dead by the next call. Every statement of this module may run twice.
    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        match self.query_once(statement, parameters).await {
            Err(AttemptError::Lost(error)) => {
                tracing::debug!("connecting again: {error}");
                self.query_once(statement, parameters).await
            }
            done => done,
        }
        .map_err(AttemptError::into_error)
    }

    async fn query_once(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, AttemptError> {
        let connected = self.connected().await.map_err(AttemptError::Failed)?;
        let reply = (*connected).query_typed(statement, parameters);
        self.reply(&connected, self.call_timeout, reply).await
    }

    /// Runs statements without parameters, as one transaction.
    pub(super) async fn run(&self, statements: &str) -> Result<()> {
        let connected = self.connected().await?;
        let reply = (*connected).batch_execute(statements);
        let replied = self.reply(&connected, self.call_timeout.max(LONGEST), reply).await;
        replied.map_err(AttemptError::into_error)
    }

    /// Waits for a reply. A connection that does not reply in time, or fails, is not used again.
    async fn reply<T>(
        &self,
        connected: &Connected,
        limit: Duration,
        reply: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, AttemptError> {
        match timeout_with_grace(limit, pin!(reply)).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) if !error::is_lost(&error) => {
                Err(AttemptError::Failed(self.explain.statement(&error)))
            }
            Some(Err(error)) => {
                self.discard(connected).await;
                Err(AttemptError::Lost(self.explain.statement(&error)))
            }
            None => {
                self.discard(connected).await;
                Err(AttemptError::Failed(error::timed_out("a statement", limit)))
            }
        }
    }

    async fn connected(&self) -> Result<Connected> {
        // Held while connecting, so that concurrent calls wait for one connection and do not open several.
        let mut current = self.current.lock().await;
        if let Some(connected) = current.as_ref().filter(|connected| !connected.is_closed()) {
            return Ok(connected.clone());
        }
        *current = None;
        let limit = self.call_timeout.max(CONNECTING);
        let connecting = timeout_with_grace(limit, (self.connect)()).await;
        let connected = connecting.unwrap_or_else(|| Err(error::timed_out("connecting", limit)))?;
        *current = Some(connected.clone());
        Ok(connected)
    }

    /// Another call may have replaced the connection already.
    async fn discard(&self, lost: &Connected) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost)) {
            *current = None;
        }
    }
}
