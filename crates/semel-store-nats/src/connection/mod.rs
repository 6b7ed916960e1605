//! One connection to one server of many. It comes back by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectOptions, Event, connection::State};
use parking_lot::Mutex;
use semel_core::Result;
use semel_remote::{ConnectedWorker, WorkerGroup};
use tokio::sync::watch;

use crate::{
    error::{timed_out, unavailable},
    settings::Plan,
};

/// Requests wait this long for a connection that is being opened; then they fail until it is there.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// A server that is gone without a word is noticed after a few of these.
const PING: Duration = Duration::from_secs(3);
/// Requests that wait for the connection to take them: more than are ever in flight.
const CAPACITY: usize = 8192;
/// News and replies that wait to be heard; of more, some are missed, which is noticed.
const SUBSCRIBED: usize = 65_536;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection, and how it is.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    health: Arc<Health>,
}

/// How often a connection of a store was lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Arc<AtomicU64>);

impl Losses {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

#[derive(Debug)]
struct Health {
    /// Changes whenever the connection is lost, and with it every reply that is still to come.
    down_since: watch::Sender<Option<Instant>>,
    crew: WorkerGroup,
    /// Told to the crew while there is a connection.
    connected: Mutex<Option<ConnectedWorker>>,
    losses: Losses,
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

impl Health {
    fn up(&self) {
        self.connected.lock().get_or_insert_with(|| self.crew.connected());
        self.down_since.send_if_modified(|since| since.take().is_some());
    }

    fn down(&self) {
        self.losses.0.fetch_add(1, SeqCst);
        *self.connected.lock() = None;
        self.down_since.send_modify(|since| {
            since.get_or_insert_with(Instant::now);
        });
    }
}

fn watched(options: ConnectOptions, health: Arc<Health>) -> ConnectOptions {
    options.event_callback(move |event| {
        match &event {
            Event::Connected => health.up(),
            Event::Disconnected => {
                tracing::warn!("nats: connection lost");
                health.down();
            }
            Event::Closed => health.down(),
            _ => tracing::debug!(%event, "nats"),
        }
        std::future::ready(())
    })
}

fn pause(attempts: usize) -> Duration {
    let doubled = FIRST_PAUSE * (1 << attempts.saturating_sub(1).min(6));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
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
