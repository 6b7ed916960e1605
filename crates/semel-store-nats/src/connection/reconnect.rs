//! The reconnect after a lost connection. The driver opens a new one by itself, after [`reconnect_pause`]; its events
//! set [`ConnectionHealth`], which makes the pipeline fail the requests in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_nats::{ConnectOptions, Event};
use parking_lot::Mutex;
use semel_remote::{ConnectedWorker, WorkerGroup};
use tokio::sync::watch;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Counts the lost connections of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostConnections(Arc<AtomicU64>);

impl LostConnections {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

/// Whether a connection is connected now.
#[derive(Debug)]
pub(super) struct ConnectionHealth {
    /// Since when there has been no connection. Notified at every loss: no reply to an earlier request will come.
    pub(super) disconnected_since: watch::Sender<Option<Instant>>,
    pub(super) group: WorkerGroup,
    /// Counts this connection in its group while it is connected.
    pub(super) worker: Mutex<Option<ConnectedWorker>>,
    pub(super) lost_connections: LostConnections,
}
impl ConnectionHealth {
    pub(super) fn connected(&self) {
        self.worker.lock().get_or_insert_with(|| self.group.connected());
        self.disconnected_since.send_if_modified(|since| since.take().is_some());
    }

    pub(super) fn disconnected(&self) {
        self.lost_connections.0.fetch_add(1, SeqCst);
        *self.worker.lock() = None;
        self.disconnected_since.send_modify(|since| {
            since.get_or_insert_with(Instant::now);
        });
    }
}

/// Connects the driver's events to `health`.
pub(super) fn with_events(
    options: ConnectOptions,
    health: Arc<ConnectionHealth>,
) -> ConnectOptions {
    options.event_callback(move |event| {
        match &event {
            Event::Connected => health.connected(),
            Event::Disconnected => {
                tracing::warn!("nats: connection lost");
                health.disconnected();
            }
            Event::Closed => health.disconnected(),
            _ => tracing::debug!(%event, "nats"),
        }
        std::future::ready(())
    })
}

/// The pause before an attempt to reconnect.
pub(super) fn reconnect_pause(attempts: usize) -> Duration {
    let doubled = FIRST_PAUSE * (1 << attempts.saturating_sub(1).min(6));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
}
