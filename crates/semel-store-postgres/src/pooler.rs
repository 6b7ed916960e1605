//! Detects a pool between semel and the server that gives each transaction another connection, such as PgBouncer with
//! `pool_mode = transaction`. It is refused: what semel sets for a session (timeouts, plans, prepared statements,
//! LISTEN) would be missing from semel's statements, and would stay on connections of other applications.

use futures_util::future::try_join;
use semel_core::{Error, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::{
    connection::{ConnectionTask, connect_raw, within_connect_timeout},
    error::explain,
    settings::PgSettings,
};

/// How often the two connections are compared. A pool that shares connections passes one comparison only if other
/// clients of the pool happen to use it in just the order that hides the sharing.
const COMPARISONS: usize = 4;

/// A connection on which nothing is set up yet, and the value that its session has.
struct PoolerProbe {
    client: Client,
    value: String,
    _task: ConnectionTask,
}

/// Refuses a server on whose connections a session's setting is lost, or appears in another session.
///
/// Two connections set a value each and read it back, one after the other. A pool that takes the connection that was
/// used last shows the second connection's value to the first; one that takes them in turn shows it no value, or the
/// other connection's. Without sharing, each connection reads its own value, so no sound server is refused. Each
/// connection and each comparison has its own connect timeout.
pub(crate) async fn refuse_shared_pool(settings: &PgSettings) -> Result<()> {
    let open = || within_connect_timeout(settings, PoolerProbe::open(settings));
    let (first, second) = try_join(open(), open()).await?;
    within_connect_timeout(settings, first.set()).await?;
    for _ in 0..COMPARISONS {
        if !within_connect_timeout(settings, are_kept(&first, &second)).await? {
            return Err(shared());
        }
    }
    Ok(())
}

/// One comparison: whether both sessions keep their values after the second was set.
async fn are_kept(first: &PoolerProbe, second: &PoolerProbe) -> Result<bool> {
    second.set().await?;
    Ok(first.is_kept().await? && first.is_kept().await? && second.is_kept().await?)
}

impl PoolerProbe {
    async fn open(settings: &PgSettings) -> Result<Self> {
        let (client, task) = Box::pin(connect_raw(settings, |_| {})).await?;
        Ok(Self { client, value: format!("{:032x}", rand::random::<u128>()), _task: task })
    }

    /// Sets a parameter that only semel uses: it changes nothing for another client that gets the connection.
    async fn set(&self) -> Result<()> {
        let set = format!("SET semel.session = '{}'", self.value);
        self.client.batch_execute(&set).await.map_err(|error| explain(&error))
    }

    async fn is_kept(&self) -> Result<bool> {
        let read = "SELECT pg_catalog.current_setting('semel.session', true)";
        let messages = self.client.simple_query(read).await.map_err(|error| explain(&error))?;
        Ok(messages.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some(&self.value),
            _ => false,
        }))
    }
}

fn shared() -> Error {
    Error::invalid(format!(
        "postgres: a pool gives each transaction another connection to the server; {FIX}"
    ))
}

/// The fix in every error about a shared session.
pub(crate) const FIX: &str = "connect to the server directly, or through a pool in session mode (PgBouncer: pool_mode = session)";
