//! A circuit to a store that may be gone: after a few failures nobody waits for it, until it answers again.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::{
    ErrorKind, KeyHash, Result, Store,
    engine::background,
    sync::{
        Instant, Mutex,
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
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A probe that takes longer has failed.
const PROBE: Duration = Duration::from_secs(1);

type Probe = Box<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// Closed while the store answers. Once open, only a probe in the background asks, ever more seldom.
pub(crate) struct Circuit {
    store: &'static str,
    failures: AtomicU32,
    /// When the first of them was counted.
    failing_since: Mutex<Option<Instant>>,
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
        Arc::new(Self {
            store,
            failures: AtomicU32::new(0),
            failing_since: Mutex::new(None),
            open: AtomicBool::new(false),
            probe: Box::new(probe),
        })
    }

    /// Closed. Probes by a read of a key that nobody has.
    pub(crate) fn to(store: Arc<dyn Store>) -> Arc<Self> {
        Self::new(store.info().name, move || {
            let store = store.clone();
            Box::pin(async move {
                let nobody = KeyHash::from_bytes([0; 32]);
                let call = Box::pin(async move { store.get(&nobody).await });
                let answer = background::within(PROBE, call, drop).await;
                answer.as_ref().is_some_and(is_answer)
            })
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    /// The store answered, or did not.
    pub(crate) fn count(self: &Arc<Self>, answered: bool) {
        self.count_within(answered, Duration::ZERO);
    }

    /// The same; failures open it only once nothing was answered for `patience` after the first of them.
    pub(crate) fn count_within(self: &Arc<Self>, answered: bool, patience: Duration) {
        if answered {
            if self.failures.load(Relaxed) > 0 {
                self.reset();
            }
            return;
        }
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        let since = *self.failing_since.lock().get_or_insert_with(Instant::now);
        if failures >= FAILURES && since.elapsed() >= patience && !self.open.swap(true, SeqCst) {
            telemetry::circuit(self.store, true);
            tracing::warn!(
                store = self.store,
                "does not answer; nobody waits for it until it does"
            );
            background::handle().spawn(probing(Arc::downgrade(self)));
        }
    }

    fn reset(&self) {
        self.failures.store(0, Relaxed);
        *self.failing_since.lock() = None;
    }

    fn close(&self) {
        self.reset();
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::MemoryStore;

    fn fails(circuit: &Arc<Circuit>, times: u32, patience: Duration) {
        (0..times).for_each(|_| circuit.count_within(false, patience));
    }

    #[test]
    fn three_failures_in_a_row_open_it() {
        let circuit = Circuit::to(Arc::new(MemoryStore::new()));
        fails(&circuit, 2, Duration::ZERO);
        circuit.count(true);
        fails(&circuit, 2, Duration::ZERO);
        assert!(!circuit.is_open());
        fails(&circuit, 1, Duration::ZERO);
        assert!(circuit.is_open());
    }

    /// A crowd that gives up at the same moment is no outage if the answers come later.
    #[test]
    fn a_store_that_answers_late_is_slow_and_not_down() {
        let (circuit, hour) =
            (Circuit::to(Arc::new(MemoryStore::new())), Duration::from_secs(3600));
        fails(&circuit, 100, hour);
        assert!(!circuit.is_open());
        std::thread::sleep(Duration::from_millis(20));
        circuit.count(true);
        fails(&circuit, 100, hour);
        assert!(!circuit.is_open(), "it answered since");
        std::thread::sleep(Duration::from_millis(20));
        fails(&circuit, 1, Duration::from_millis(10));
        assert!(circuit.is_open(), "nothing was answered for longer than that");
    }

    #[tokio::test]
    async fn it_closes_by_itself_when_the_store_answers() {
        let circuit = Circuit::to(Arc::new(MemoryStore::new()));
        fails(&circuit, 3, Duration::ZERO);
        while circuit.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
