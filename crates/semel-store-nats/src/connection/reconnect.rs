//! What happens when the driver loses its connection: requests in flight are lost, and it connects again after a pause.

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

/// How often a connection of a store was lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Arc<AtomicU64>);

impl Losses {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Health {
    /// Changes whenever the connection is lost, and with it every reply that is still to come.
    pub(super) down_since: watch::Sender<Option<Instant>>,
    pub(super) crew: WorkerGroup,
    /// Told to the crew while there is a connection.
    pub(super) connected: Mutex<Option<ConnectedWorker>>,
    pub(super) losses: Losses,
}
impl Health {
    pub(super) fn up(&self) {
        self.connected.lock().get_or_insert_with(|| self.crew.connected());
        self.down_since.send_if_modified(|since| since.take().is_some());
    }

    pub(super) fn down(&self) {
        self.losses.0.fetch_add(1, SeqCst);
        *self.connected.lock() = None;
        self.down_since.send_modify(|since| {
            since.get_or_insert_with(Instant::now);
        });
    }
}

pub(super) fn watched(options: ConnectOptions, health: Arc<Health>) -> ConnectOptions {
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

pub(super) fn pause(attempts: usize) -> Duration {
    let doubled = FIRST_PAUSE * (1 << attempts.saturating_sub(1).min(6));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..1.0))
}
