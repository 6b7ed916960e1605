//! A circuit breaker for a store that may be gone: after a few failures callers do not wait for it, until it answers again.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;

use crate::{
    ErrorKind, KeyHash, Result, Store, background,
    sync::{
        Instant, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        time::sleep,
    },
    telemetry,
};

/// Failures in a row that open it.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The least time that a probe has.
const PROBE: Duration = Duration::from_secs(1);

/// Asks the store, within so long at least, and says whether it answered.
type Probe = Box<dyn Fn(Duration) -> BoxFuture<'static, bool> + Send + Sync>;

/// A circuit breaker. Closed while calls are answered. While it is open, a probe asks the store in the background, less
/// and less often. A probe that is answered makes it half-open: it reads, and an outage may be one of writes. So the next
/// call that fails opens the circuit again at once, and only a call that is answered closes it.
pub(crate) struct CircuitBreaker {
    store: &'static str,
    /// A copy of what `outage` says, so that an answered call takes no lock while none has failed.
    is_failing: AtomicBool,
    /// The same, for [`CircuitBreaker::is_open`].
    is_open: AtomicBool,
    outage: Mutex<Outage>,
    probe: Probe,
}

/// What is known since the last call that was answered.
#[derive(Debug)]
struct Outage {
    state: State,
    failures: u32,
    /// When the first of them was counted.
    since: Option<Instant>,
    /// The longest time that a failed call had.
    patience: Duration,
    /// Before the next probe.
    pause: Duration,
    /// How often the circuit was opened: a probe of an earlier opening ends.
    openings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    HalfOpen,
}

impl Outage {
    const fn none(openings: u64) -> Self {
        Self {
            state: State::Closed,
            failures: 0,
            since: None,
            patience: Duration::ZERO,
            pause: FIRST_PAUSE,
            openings,
        }
    }
}

impl CircuitBreaker {
    /// Closed. `probe` asks the store, and says whether it answered.
    pub(crate) fn new(
        store: &'static str,
        probe: impl Fn(Duration) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> Arc<Self> {
        telemetry::circuit(store, false);
        Arc::new(Self {
            store,
            is_failing: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            outage: Mutex::new(Outage::none(0)),
            probe: Box::new(probe),
        })
    }

    /// Closed. Probes by reading a key that does not exist.
    pub(crate) fn for_store(store: Arc<dyn Store>) -> Arc<Self> {
        Self::new(store.info().name, move |patience| {
            let store = store.clone();
            Box::pin(async move {
                let absent = KeyHash::from_bytes([0; 32]);
                let call = Box::pin(async move { store.get(&absent).await });
                let answer =
                    background::timeout_without_cancel(patience.max(PROBE), call, drop).await;
                answer.as_ref().is_some_and(is_answer)
            })
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(SeqCst)
    }

    /// The store answered a call, or did not.
    pub(crate) fn count(self: &Arc<Self>, answered: bool) {
        self.count_within(answered, Duration::ZERO);
    }

    /// The same; failures open it only once nothing was answered for `patience` after the first of them.
    pub(crate) fn count_within(self: &Arc<Self>, answered: bool, patience: Duration) {
        if !answered {
            self.failed(patience);
        } else if self.is_failing.load(SeqCst) {
            self.answered();
        }
    }

    fn failed(self: &Arc<Self>, patience: Duration) {
        let mut outage = self.outage.lock();
        self.is_failing.store(true, SeqCst);
        outage.failures = outage.failures.saturating_add(1);
        outage.patience = outage.patience.max(patience);
        let since = *outage.since.get_or_insert_with(Instant::now);
        let opens = match outage.state {
            State::Closed => outage.failures >= FAILURES && since.elapsed() >= patience,
            State::HalfOpen => true,
            State::Open => false,
        };
        if !opens {
            return;
        }
        // A half-open circuit was logged when it first opened.
        if outage.state == State::Closed {
            tracing::warn!(
                store = self.store,
                "the store does not answer; requests fail fast until it does"
            );
        }
        outage.state = State::Open;
        outage.openings += 1;
        self.is_open.store(true, SeqCst);
        telemetry::circuit(self.store, true);
        background::handle().spawn(probing(Arc::downgrade(self), outage.openings));
    }

    fn answered(&self) {
        let mut outage = self.outage.lock();
        let before = outage.state;
        *outage = Outage::none(outage.openings);
        self.is_failing.store(false, SeqCst);
        if before != State::Closed {
            self.is_open.store(false, SeqCst);
            telemetry::circuit(self.store, false);
            tracing::info!(store = self.store, "the store answers again");
        }
    }

    /// How long to pause before the next probe, and how long that has. `None` when this opening is over.
    fn next_probe(&self, opening: u64) -> Option<(Duration, Duration)> {
        let mut outage = self.outage.lock();
        let is_current = outage.state == State::Open && outage.openings == opening;
        let next = (outage.pause, outage.patience);
        if is_current {
            outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
        }
        is_current.then_some(next)
    }

    /// A probe was answered.
    fn half_open(&self, opening: u64) {
        let mut outage = self.outage.lock();
        if outage.state == State::Open && outage.openings == opening {
            outage.state = State::HalfOpen;
            self.is_open.store(false, SeqCst);
            telemetry::circuit(self.store, false);
        }
    }
}

/// Asks until there is an answer, or the circuit is closed or dropped.
async fn probing(circuit: Weak<CircuitBreaker>, opening: u64) {
    while let Some((pause, patience)) =
        circuit.upgrade().and_then(|circuit| circuit.next_probe(opening))
    {
        sleep(pause).await;
        let Some(circuit) = circuit.upgrade() else { return };
        if (circuit.probe)(patience).await {
            return circuit.half_open(opening);
        }
    }
}

/// False when it is not known whether the call happened.
pub(crate) fn is_answer<T>(answer: &Result<T>) -> bool {
    !matches!(answer, Err(error) if error.kind() == ErrorKind::Unavailable)
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, is_open, .. } = self;
        let mut circuit = f.debug_struct("CircuitBreaker");
        circuit.field("store", store).field("is_open", is_open).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::MemoryStore;

    fn fails(circuit: &Arc<CircuitBreaker>, times: u32, patience: Duration) {
        (0..times).for_each(|_| circuit.count_within(false, patience));
    }

    /// Its probes are not answered.
    fn unanswered() -> Arc<CircuitBreaker> {
        CircuitBreaker::new("test", |_| Box::pin(std::future::pending()))
    }

    #[test]
    fn three_failures_in_a_row_open_it() {
        let circuit = unanswered();
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
        let (circuit, hour) = (unanswered(), Duration::from_secs(3600));
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

    async fn until_half_open(circuit: &CircuitBreaker) {
        while circuit.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_probe_that_is_answered_lets_calls_wait_again() {
        let circuit = CircuitBreaker::for_store(Arc::new(MemoryStore::new()));
        fails(&circuit, 3, Duration::ZERO);
        until_half_open(&circuit).await;
    }

    /// As of a server that reads and cannot write.
    #[tokio::test]
    async fn after_an_answered_probe_one_failure_opens_it_again_and_an_answer_closes_it() {
        let (is_read, hour) = (Arc::new(AtomicBool::new(true)), Duration::from_secs(3600));
        let probed = is_read.clone();
        let circuit =
            CircuitBreaker::new("test", move |_| Box::pin(std::future::ready(probed.load(SeqCst))));
        fails(&circuit, 3, Duration::ZERO);
        for _ in 0..2 {
            is_read.store(true, SeqCst);
            until_half_open(&circuit).await;
            is_read.store(false, SeqCst);
            fails(&circuit, 1, hour);
            assert!(circuit.is_open(), "only a probe was answered since");
        }
        circuit.count(true);
        assert!(!circuit.is_open(), "an answered call closes it without a probe");
        fails(&circuit, 2, Duration::ZERO);
        assert!(!circuit.is_open(), "and it takes three failures again");
    }

    #[tokio::test]
    async fn a_probe_has_as_long_as_the_calls_that_failed() {
        let (had, mut probed) = tokio::sync::mpsc::unbounded_channel();
        let circuit = CircuitBreaker::new("test", move |patience| {
            had.send(patience).expect("the test waits");
            Box::pin(std::future::ready(true))
        });
        fails(&circuit, 2, Duration::from_secs(3));
        fails(&circuit, 1, Duration::ZERO);
        assert_eq!(probed.recv().await, Some(Duration::from_secs(3)));
    }
}
