//! One connection to one of the servers: opened here from a URL, or given by the caller. After a loss, the driver opens
//! a new one by itself and subscribes again.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use async_nats::{Client, Event, connection::State};
use semel_core::Result;
use tokio::time::timeout;

use crate::{
    error::{connection_lost, not_connected_in_time, timed_out, unreachable},
    jetstream::{CALL_TIMEOUT, JetStream},
    url::NatsAddress,
};

/// How often the driver pings the server. It notices a server that does not answer after a few pings.
const PING: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(crate) enum Connector {
    /// It is opened, and closed with its owner.
    Address(NatsAddress),
    /// The caller's. It stays open.
    Client(Box<Client>),
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) jetstream: JetStream,
    is_own: bool,
}

impl Connector {
    pub(crate) async fn connect(&self, domain: Option<&str>) -> Result<Connection> {
        match self {
            Self::Address(address) => {
                let jetstream = JetStream::new(open(address).await?, domain);
                Ok(Connection { jetstream, is_own: true })
            }
            Self::Client(client) => Ok(Connection::of_caller(client.as_ref().clone(), domain)),
        }
    }
}

async fn open(address: &NatsAddress) -> Result<Client> {
    let options = address
        .options()?
        .connection_timeout(CALL_TIMEOUT)
        .ping_interval(PING)
        .reconnect_delay_callback(reconnect_pause)
        .event_callback(|event| {
            report(&event);
            std::future::ready(())
        })
        .name("semel");
    let connecting = timeout(CALL_TIMEOUT, options.connect(address.servers()?));
    connecting.await.map_err(|_| not_connected_in_time())?.map_err(unreachable)
}

fn report(event: &Event) {
    match event {
        Event::Disconnected => tracing::warn!("nats: connection lost"),
        // Such as a permission that this user lacks; the request that needed it only times out.
        Event::ServerError(error) => tracing::warn!(%error, "nats: the server reports an error"),
        Event::SlowConsumer(_) => tracing::warn!("nats: messages were dropped; they come again"),
        _ => tracing::debug!(%event, "nats"),
    }
}

/// The pause before an attempt to reconnect.
fn reconnect_pause(attempts: usize) -> Duration {
    let doubled = FIRST_PAUSE * (1 << attempts.saturating_sub(1).min(6));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
}

impl Connection {
    /// A connection that stays open.
    pub(crate) fn of_caller(client: Client, domain: Option<&str>) -> Self {
        Self { jetstream: JetStream::new(client, domain), is_own: false }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.jetstream.client
    }

    /// Sends what is buffered, and closes the connection if it was opened here.
    pub(crate) async fn close(&self) -> Result<()> {
        if !is_connected(self.client()) {
            return if self.is_own { self.drain().await } else { Err(connection_lost()) };
        }
        let flushed = timeout(CALL_TIMEOUT, self.client().flush()).await;
        flushed.map_err(|_| timed_out())?.map_err(|_| connection_lost())?;
        if self.is_own { self.drain().await } else { Ok(()) }
    }

    async fn drain(&self) -> Result<()> {
        let drained = timeout(CALL_TIMEOUT, self.client().drain()).await;
        drained.map_err(|_| timed_out())?.map_err(|_| connection_lost())
    }
}

pub(crate) fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

/// How often the driver has connected. When the number has changed, earlier requests may be lost.
pub(crate) fn connects(client: &Client) -> u64 {
    client.statistics().connects.load(Relaxed)
}
