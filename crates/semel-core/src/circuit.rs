//! A circuit to a store that may be gone: after a few failures nobody waits for it, until it answers again.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::{
    ErrorKind, Result,
    engine::background,
    sync::{
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
        time::sleep,
    },
    telemetry,
};

/// Failures in a row that open it.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

type Probe = Box<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// Closed while the store answers. Once open, only a probe in the background asks, ever more seldom.
pub(crate) struct Circuit {
    store: &'static str,
    failures: AtomicU32,
    open: AtomicBool,
    probe: Probe,
}

impl Circuit {
    /// Closed. `probe` asks the store, and says whether it answered.
    pub(crate) fn new(
        store: &'static str,
        probe: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> Arc<Self> {
        telemetry::circuit(store, false);
        let (failures, open) = (AtomicU32::new(0), AtomicBool::new(false));
        Arc::new(Self { store, failures, open, probe: Box::new(probe) })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    /// The store answered, or did not.
    pub(crate) fn count(self: &Arc<Self>, answered: bool) {
        if answered {
            if self.failures.load(Relaxed) > 0 {
                self.failures.store(0, Relaxed);
            }
            return;
        }
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        if failures >= FAILURES && !self.open.swap(true, SeqCst) {
            telemetry::circuit(self.store, true);
            tracing::warn!(store = self.store, "does not answer; it is left alone until it does");
            background::handle().spawn(probing(Arc::downgrade(self)));
        }
    }

    fn close(&self) {
        self.failures.store(0, Relaxed);
        self.open.store(false, SeqCst);
        telemetry::circuit(self.store, false);
        tracing::info!(store = self.store, "answers again");
    }
}

/// Asks until there is an answer, or nobody wants to know any more.
async fn probing(circuit: std::sync::Weak<Circuit>) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause).await;
        let Some(circuit) = circuit.upgrade() else { return };
        if (circuit.probe)().await {
            return circuit.close();
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// False when nobody can say whether it happened.
pub(crate) fn is_answer<T>(answer: &Result<T>) -> bool {
    !matches!(answer, Err(error) if error.kind() == ErrorKind::Unavailable)
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, open, .. } = self;
        f.debug_struct("Circuit").field("store", store).field("open", open).finish_non_exhaustive()
    }
}
