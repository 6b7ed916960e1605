//! A pool between semel and the server. One that gives each transaction another connection, such as PgBouncer with
//! `pool_mode = transaction`, is refused: what semel sets for a session (timeouts, plans, prepared statements, LISTEN)
//! would be missing from its own statements, and would stay on connections of other applications.

use futures_util::future::try_join;
use semel_core::{Error, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::{
    connection::{Driver, dial, in_time},
    error::explain,
    settings::Settings,
};

/// How often the two connections are compared. A pool that shares connections passes one comparison only if other
/// clients of the pool happen to use it in just the order that hides the sharing.
const LOOKS: usize = 4;

/// A connection on which nothing is set up yet, and the value that its session has.
struct Probe {
    client: Client,
    value: String,
    _driver: Driver,
}

/// Refuses a server on whose connections a setting of the session does not stay, or shows up in another session.
///
/// Two connections set a value each and read it back, one after the other. A pool that takes the connection that was
/// used last shows the second connection's value to the first; one that takes them in turn shows it none, or
/// the other's. Where every client has a connection of its own, each finds its value, so nothing is refused wrongly.
/// Each connection and each look has the connect timeout for itself.
pub(crate) async fn refuse_shared(settings: &Settings) -> Result<()> {
    let open = || in_time(settings, Probe::open(settings));
    let (first, second) = try_join(open(), open()).await?;
    in_time(settings, first.set()).await?;
    for _ in 0..LOOKS {
        if !in_time(settings, are_kept(&first, &second)).await? {
            return Err(shared());
        }
    }
    Ok(())
}

/// One look: whether both sessions keep their values after the second was set.
async fn are_kept(first: &Probe, second: &Probe) -> Result<bool> {
    second.set().await?;
    Ok(first.is_kept().await? && first.is_kept().await? && second.is_kept().await?)
}

impl Probe {
    async fn open(settings: &Settings) -> Result<Self> {
        let (client, driver) = Box::pin(dial(settings, |_| {})).await?;
        Ok(Self { client, value: format!("{:032x}", rand::random::<u128>()), _driver: driver })
    }

    /// A setting of semel's own, which changes nothing for others who may see it.
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

/// What helps wherever sessions are shared.
pub(crate) const FIX: &str = "connect to the server directly, or through a pool in session mode (PgBouncer: pool_mode = session)";
