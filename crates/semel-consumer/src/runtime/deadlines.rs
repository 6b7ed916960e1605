//! Extends the deadlines of all deliveries that are received and not settled, whether they wait or run.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::source::Settlement;

/// A delivery is not extended for longer: a handler that hangs must not keep its message from other processes.
const LONGEST: Duration = Duration::from_secs(3600);
/// Extensions that are sent at the same time.
const CONCURRENT: usize = 64;

/// The deliveries whose deadlines are extended. Empty if the source has no deadlines.
#[derive(Default)]
pub(crate) struct Deadlines {
    open: Mutex<HashMap<u64, OpenDelivery>>,
    next: AtomicU64,
}

struct OpenDelivery {
    settlement: Arc<dyn Settlement>,
    since: Instant,
}

impl Deadlines {
    pub(crate) fn add(&self, settlement: Arc<dyn Settlement>) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        self.open.lock().insert(number, OpenDelivery { settlement, since: Instant::now() });
        number
    }

    pub(crate) fn remove(&self, number: u64) {
        self.open.lock().remove(&number);
    }

    /// Extends all of them three times per `deadline`, until it is dropped.
    pub(crate) async fn extend_all(&self, deadline: Duration) {
        let mut ticks = interval(deadline / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let due: Vec<_> = {
                let open = self.open.lock();
                let due = open.values().filter(|it| now.duration_since(it.since) < LONGEST);
                due.map(|it| it.settlement.clone()).collect()
            };
            let mut failed = Vec::new();
            for some in due.chunks(CONCURRENT) {
                let results = join_all(some.iter().map(|settlement| settlement.extend())).await;
                failed.extend(results.into_iter().filter_map(semel_core::Result::err));
            }
            if let Some(error) = failed.first() {
                let count = failed.len();
                tracing::warn!(count, "cannot extend the deadlines of messages: {error}");
            }
        }
    }
}
