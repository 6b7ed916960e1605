//! One connection to one server of many. It comes back by itself.

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

use self::reconnect::{Health, pause, watched};
use crate::{
    error::{timed_out, unavailable},
    settings::Plan,
};

pub(crate) use self::reconnect::Losses;

/// Requests wait this long for a connection that is being opened; then they fail until it is there.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// A server that is gone without a word is noticed after a few of these.
const PING: Duration = Duration::from_secs(3);
/// Requests that wait for the connection to take them: more than are ever in flight.
const CAPACITY: usize = 8192;
/// News and replies that wait to be heard; of more, some are missed, which is noticed.
const SUBSCRIBED: usize = 65_536;

/// A connection, and how it is.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    health: Arc<Health>,
}

impl Connection {
    /// Opens one on this runtime, for that crew.
    pub(crate) async fn open(plan: &Plan, crew: WorkerGroup) -> Result<Self> {
        let (down_since, connected) = (watch::Sender::new(None), Mutex::default());
        let losses = plan.losses.clone();
        let health = Arc::new(Health { down_since, crew, connected, losses });
        let (servers, options) = (plan.target.servers()?, plan.target.options()?);
        let options = watched(options, health.clone())
            .connection_timeout(plan.call_timeout)
            .request_timeout(None)
            .ping_interval(PING)
            .client_capacity(CAPACITY)
            .subscription_capacity(SUBSCRIBED)
            .reconnect_delay_callback(pause)
            .name("semel");
        let connecting = tokio::time::timeout(plan.call_timeout, options.connect(servers));
        let client = connecting.await.map_err(|_| timed_out())?.map_err(unreachable)?;
        Ok(Self { client, health })
    }

    /// Since when there has been no connection, as it changes.
    pub(crate) fn down_since(&self) -> watch::Receiver<Option<Instant>> {
        self.health.down_since.subscribe()
    }

    pub(crate) fn is_up(&self) -> bool {
        let since = *self.health.down_since.borrow();
        since.is_none_or(|since| self.is_back(since))
    }

    /// True when there has been no connection for a while.
    pub(crate) fn is_down(&self) -> bool {
        let since = *self.health.down_since.borrow();
        since.is_some_and(|since| since.elapsed() > GRACE && !self.is_back(since))
    }

    /// Whether it came back untold: the driver drops events while too many wait. It says that a connection
    /// is lost a moment before it counts as lost, so it is asked only after a while.
    fn is_back(&self, down_since: Instant) -> bool {
        let back =
            down_since.elapsed() > GRACE && self.client.connection_state() == State::Connected;
        if back {
            self.health.up();
        }
        back
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
