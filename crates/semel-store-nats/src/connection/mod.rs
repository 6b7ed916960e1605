//! One connection to one of the servers: opened here, and opened again by the driver after a loss, see `reconnect.rs`.

mod reconnect;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, connection::State};
use parking_lot::Mutex;
use semel_core::Result;
use semel_remote::WorkerGroup;
use tokio::sync::watch;

use self::reconnect::{ConnectionHealth, reconnect_pause, with_events};
use crate::{
    error::{timed_out, unavailable},
    settings::NatsSettings,
};

pub(crate) use self::reconnect::LostConnections;

/// How long requests wait for a lost connection to be opened again. After that they fail until it is open.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How often the driver pings the server. It notices a server that does not answer after a few pings.
const PING: Duration = Duration::from_secs(3);
/// Requests that the driver buffers: more than are ever in flight.
const REQUEST_CAPACITY: usize = 8192;
/// Messages that the driver buffers for a subscription. If there are more, some are lost, which semel notices.
const SUBSCRIPTION_CAPACITY: usize = 65_536;

/// A connection, and whether it is connected now.
#[derive(Debug)]
pub(crate) struct NatsConnection {
    pub(crate) client: Client,
    health: Arc<ConnectionHealth>,
}

impl NatsConnection {
    /// Opens a connection on this runtime.
    pub(crate) async fn open(settings: &NatsSettings, group: WorkerGroup) -> Result<Self> {
        let (disconnected_since, worker) = (watch::Sender::new(None), Mutex::default());
        let lost_connections = settings.lost_connections.clone();
        let health =
            Arc::new(ConnectionHealth { disconnected_since, group, worker, lost_connections });
        let (servers, options) = (settings.url.servers()?, settings.url.options()?);
        let options = with_events(options, health.clone())
            .connection_timeout(settings.call_timeout)
            .request_timeout(None)
            .ping_interval(PING)
            .client_capacity(REQUEST_CAPACITY)
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .reconnect_delay_callback(reconnect_pause)
            .name("semel");
        let connecting = tokio::time::timeout(settings.call_timeout, options.connect(servers));
        let client = connecting.await.map_err(|_| timed_out())?.map_err(unreachable)?;
        Ok(Self { client, health })
    }

    /// Since when there has been no connection; notified when that changes.
    pub(crate) fn disconnected_since(&self) -> watch::Receiver<Option<Instant>> {
        self.health.disconnected_since.subscribe()
    }

    pub(crate) fn is_connected(&self) -> bool {
        let since = *self.health.disconnected_since.borrow();
        since.is_none_or(|since| self.has_reconnected(since))
    }

    /// True when there has been no connection for a while.
    pub(crate) fn is_disconnected(&self) -> bool {
        let since = *self.health.disconnected_since.borrow();
        since.is_some_and(|since| since.elapsed() > GRACE && !self.has_reconnected(since))
    }

    /// True if the driver has reconnected without an event: it drops events when too many wait. Its state still says
    /// `Connected` for a moment after it reports a loss, so the state counts only after a while.
    fn has_reconnected(&self, disconnected_since: Instant) -> bool {
        let has_reconnected = disconnected_since.elapsed() > GRACE
            && self.client.connection_state() == State::Connected;
        if has_reconnected {
            self.health.connected();
        }
        has_reconnected
    }
}

fn unreachable(error: async_nats::ConnectError) -> semel_core::Error {
    use async_nats::ConnectErrorKind::{
        Authentication, AuthorizationViolation, Dns, Io, MaxReconnects, ServerParse, TimedOut, Tls,
    };
    match error.kind() {
        Authentication | AuthorizationViolation => unavailable(
            "nats: user or password is not accepted; put them into the URL as USER:PASSWORD@",
        ),
        Tls => unavailable(
            "nats: no TLS connection; use nats+tls:// and name the authority with ?ca=FILE",
        )
        .with_source(error),
        ServerParse | Dns | TimedOut | Io | MaxReconnects => {
            unavailable("nats: no server can be reached; check host and port").with_source(error)
        }
    }
}
