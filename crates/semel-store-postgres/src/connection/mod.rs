//! One connection: opened, set up and checked. A server that is not fit for records is refused here.

mod prepared;
mod server_facts;

use std::{future::poll_fn, ops::Deref, pin::pin};

use semel_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Notification, error::DbError};

pub(crate) use self::{
    prepared::{Params, PreparedConnection, retry_conflicts},
    server_facts::ServerFacts,
};
use crate::{
    error::{explain, refused},
    settings::PgSettings,
};

/// A connection that is set up and checked.
#[derive(Debug)]
pub struct PgConnection {
    pub(crate) client: Client,
    pub(crate) facts: ServerFacts,
    task: ConnectionTask,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    /// Requests of callers.
    Requests,
    /// Listing, purging, migrating.
    Maintenance,
    /// NOTIFY and LISTEN.
    ChangeFeed,
}

/// The task that reads and writes the socket of a client. Dropping it closes the socket at once.
#[derive(Debug)]
pub(crate) struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Deref for PgConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl PgConnection {
    /// Connects, sets up, and refuses a server that is not fit.
    pub(crate) async fn open(settings: &PgSettings, purpose: ConnectionPurpose) -> Result<Self> {
        Self::listening(settings, purpose, |_| {}).await
    }

    /// The same, and passes notifications to `on_notification`.
    pub(crate) async fn listening(
        settings: &PgSettings,
        purpose: ConnectionPurpose,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self> {
        let connection = Self::unchecked(settings, purpose, on_notification).await?;
        connection.facts.check()?;
        Ok(connection)
    }

    /// Connects and sets up; the caller checks the facts.
    pub(crate) async fn unchecked(
        settings: &PgSettings,
        purpose: ConnectionPurpose,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self> {
        within_connect_timeout(settings, connect(settings, purpose, on_notification)).await
    }

    /// Returns when the connection is closed.
    pub(crate) async fn closed(&mut self) {
        // It is closed when the task has ended, for whatever reason.
        let _ = (&mut self.task.0).await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

async fn connect(
    settings: &PgSettings,
    purpose: ConnectionPurpose,
    on_notification: impl FnMut(Notification) + Send + 'static,
) -> Result<PgConnection> {
    let (client, task) = connect_raw(settings, on_notification).await?;
    let messages = client.simple_query(&set_up(settings, purpose)).await;
    let facts = ServerFacts::read(&messages.map_err(|error| explain(&error))?)?;
    Ok(PgConnection { client, facts, task })
}

/// Connects; no setting is made yet.
pub(crate) async fn connect_raw(
    settings: &PgSettings,
    mut on_notification: impl FnMut(Notification) + Send + 'static,
) -> Result<(Client, ConnectionTask)> {
    let connected = settings.server.connect(settings.tls.clone()).await;
    let (client, mut connection) = connected.map_err(|error| refused(&error))?;
    let task = ConnectionTask(tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                AsyncMessage::Notification(notification) => on_notification(notification),
                AsyncMessage::Notice(notice) if is_unreplicated(&notice) => break,
                _ => {}
            }
        }
    }));
    Ok((client, task))
}

/// True when a commit's wait for its synchronous replica was cancelled. The server then reports success, but a
/// failover would lose the commit. The connection is closed instead, so that its calls may have happened.
fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// In a schema of the search path, another role could define operators that take precedence over the server's own.
fn search_path(settings: &PgSettings) -> &'static str {
    match settings.server.get_options() {
        Some(options) if options.contains("search_path") => "",
        _ => "SET search_path = pg_catalog, pg_temp;",
    }
}

/// Sets what statements rely on, and selects the facts.
fn set_up(settings: &PgSettings, purpose: ConnectionPurpose) -> String {
    let limit = match purpose {
        ConnectionPurpose::Requests | ConnectionPurpose::ChangeFeed => settings.call_timeout,
        ConnectionPurpose::Maintenance => settings.maintenance_timeout(),
    };
    let (lock, limit) = (settings.lock_timeout.as_millis(), limit.as_millis());
    let plans = match purpose {
        // Rows are found by key, in the order of the batch. Plans then do not depend on the size of the batch,
        // and the statistics of a small table do not make the planner scan it.
        ConnectionPurpose::Requests => {
            "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
             SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off;"
        }
        ConnectionPurpose::Maintenance | ConnectionPurpose::ChangeFeed => "",
    };
    let path = search_path(settings);
    format!(
        "{path} SET client_min_messages = warning; SET lock_timeout = {lock}; SET statement_timeout = {limit};
         SET default_transaction_isolation = 'read committed'; {plans}
         SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
           current_setting('synchronous_commit'), current_setting('fsync'),
           current_setting('server_encoding'), current_setting('server_version_num'),
           current_setting('full_page_writes'), current_setting('synchronous_standby_names')"
    )
}

/// Gives up on a server that accepts connections and then does not answer.
pub(crate) async fn within_connect_timeout<T>(
    settings: &PgSettings,
    opening: impl Future<Output = Result<T>>,
) -> Result<T> {
    let opened = semel_remote::timeout_with_grace(settings.connect_timeout, pin!(opening)).await;
    opened.unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, NO_ANSWER)))
}

const NO_ANSWER: &str = "postgres: the server accepts connections but does not answer; is it overloaded, or a pool in front of it too small?";
