//! A circuit breaker for a store on a server: after a few failures callers do not wait for it, until it replies again.

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

/// Failures in a row that open the circuit.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The least time that a probe waits for its reply.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a read to the store, waits for the given time at least, and returns whether the store replied.
type ProbeFn = Box<dyn Fn(Duration) -> BoxFuture<'static, bool> + Send + Sync>;

/// A circuit breaker. It is closed while the store replies. While it is open, a probe in the background reads from the
/// store, less and less often. A reply to a probe makes it half-open only, since a store may serve reads and not
/// writes: the next call that fails opens it again at once, and only a call that gets a reply closes it.
pub(crate) struct CircuitBreaker {
    store: &'static str,
    /// A copy of what `outage` says, so that a successful call takes no lock while none has failed.
    is_failing: AtomicBool,
    /// A copy too, for [`CircuitBreaker::is_open`].
    is_open: AtomicBool,
    outage: Mutex<Outage>,
    probe: ProbeFn,
}

/// The failures since the last call that got a reply.
#[derive(Debug)]
struct Outage {
    state: CircuitState,
    failures: u32,
    /// When the first failure was counted.
    since: Option<Instant>,
    /// The longest time that a failed call waited.
    patience: Duration,
    /// The pause before the next probe.
    pause: Duration,
    /// How often the circuit was opened. A probe task of an earlier opening ends.
    openings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitState {
    Closed,
    Open,
    HalfOpen,
}

impl Outage {
    const fn none(openings: u64) -> Self {
        Self {
            state: CircuitState::Closed,
            failures: 0,
            since: None,
            patience: Duration::ZERO,
            pause: FIRST_PAUSE,
            openings,
        }
    }
}

impl CircuitBreaker {
    /// A closed circuit. `probe` reads from the store and returns whether it replied.
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

    /// A closed circuit that probes by reading a key that does not exist.
    pub(crate) fn for_store(store: Arc<dyn Store>) -> Arc<Self> {
        Self::new(store.info().name, move |patience| {
            let store = store.clone();
            Box::pin(async move {
                let absent = KeyHash::from_bytes([0; 32]);
                let call = Box::pin(async move { store.get(&absent).await });
                let reply =
                    background::timeout_without_cancel(patience.max(PROBE_TIMEOUT), call, drop)
                        .await;
                reply.as_ref().is_some_and(store_replied)
            })
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(SeqCst)
    }

    /// Counts a call that got a reply, or none.
    pub(crate) fn count(self: &Arc<Self>, replied: bool) {
        self.count_within(replied, Duration::ZERO);
    }

    /// Like [`CircuitBreaker::count`], but failures open the circuit only if no reply comes for `patience` after the
    /// first of them.
    pub(crate) fn count_within(self: &Arc<Self>, replied: bool, patience: Duration) {
        if !replied {
            self.failed(patience);
        } else if self.is_failing.load(SeqCst) {
            self.replied();
        }
    }

    fn failed(self: &Arc<Self>, patience: Duration) {
        let mut outage = self.outage.lock();
        self.is_failing.store(true, SeqCst);
        outage.failures = outage.failures.saturating_add(1);
        outage.patience = outage.patience.max(patience);
        let since = *outage.since.get_or_insert_with(Instant::now);
        let opens = match outage.state {
            CircuitState::Closed => outage.failures >= FAILURES && since.elapsed() >= patience,
            CircuitState::HalfOpen => true,
            CircuitState::Open => false,
        };
        if !opens {
            return;
        }
        // A half-open circuit was logged when it first opened.
        if outage.state == CircuitState::Closed {
            tracing::warn!(
                store = self.store,
                "the store does not answer; requests fail fast until it does"
            );
        }
        outage.state = CircuitState::Open;
        outage.openings += 1;
        self.is_open.store(true, SeqCst);
        telemetry::circuit(self.store, true);
        background::handle().spawn(probe_until_reply(Arc::downgrade(self), outage.openings));
    }

    fn replied(&self) {
        let mut outage = self.outage.lock();
        let before = outage.state;
        *outage = Outage::none(outage.openings);
        self.is_failing.store(false, SeqCst);
        if before != CircuitState::Closed {
            self.is_open.store(false, SeqCst);
            telemetry::circuit(self.store, false);
            tracing::info!(store = self.store, "the store answers again");
        }
    }

    /// How long to pause before the next probe, and how long the probe waits. `None` when this opening has ended.
    fn next_probe(&self, opening: u64) -> Option<(Duration, Duration)> {
        let mut outage = self.outage.lock();
        let is_current = outage.state == CircuitState::Open && outage.openings == opening;
        let next = (outage.pause, outage.patience);
        if is_current {
            outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
        }
        is_current.then_some(next)
    }

    /// A probe got a reply.
    fn half_open(&self, opening: u64) {
        let mut outage = self.outage.lock();
        if outage.state == CircuitState::Open && outage.openings == opening {
            outage.state = CircuitState::HalfOpen;
            self.is_open.store(false, SeqCst);
            telemetry::circuit(self.store, false);
        }
    }
}

/// Probes until the store replies, or the circuit is closed or dropped.
async fn probe_until_reply(circuit: Weak<CircuitBreaker>, opening: u64) {
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
pub(crate) fn store_replied<T>(reply: &Result<T>) -> bool {
    !matches!(reply, Err(error) if error.kind() == ErrorKind::Unavailable)
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

    /// A circuit whose probes get no reply.
    fn without_probe_replies() -> Arc<CircuitBreaker> {
        CircuitBreaker::new("test", |_| Box::pin(std::future::pending()))
    }

    #[test]
    fn three_failures_in_a_row_open_the_circuit() {
        let circuit = without_probe_replies();
        fails(&circuit, 2, Duration::ZERO);
        circuit.count(true);
        fails(&circuit, 2, Duration::ZERO);
        assert!(!circuit.is_open());
        fails(&circuit, 1, Duration::ZERO);
        assert!(circuit.is_open());
    }

    /// Many callers that time out at the same moment are no outage if the replies come later.
    #[test]
    fn a_store_that_replies_late_is_slow_and_not_down() {
        let (circuit, hour) = (without_probe_replies(), Duration::from_secs(3600));
        fails(&circuit, 100, hour);
        assert!(!circuit.is_open());
        std::thread::sleep(Duration::from_millis(20));
        circuit.count(true);
        fails(&circuit, 100, hour);
        assert!(!circuit.is_open(), "it has replied since");
        std::thread::sleep(Duration::from_millis(20));
        fails(&circuit, 1, Duration::from_millis(10));
        assert!(circuit.is_open(), "there was no reply for longer than that");
    }

    async fn until_half_open(circuit: &CircuitBreaker) {
        while circuit.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_reply_to_a_probe_lets_calls_wait_again() {
        let circuit = CircuitBreaker::for_store(Arc::new(MemoryStore::new()));
        fails(&circuit, 3, Duration::ZERO);
        until_half_open(&circuit).await;
    }

    /// A server may serve reads and not writes.
    #[tokio::test]
    async fn after_a_reply_to_a_probe_one_failure_opens_the_circuit_again_and_a_reply_closes_it() {
        let (serves_reads, hour) = (Arc::new(AtomicBool::new(true)), Duration::from_secs(3600));
        let probed = serves_reads.clone();
        let circuit =
            CircuitBreaker::new("test", move |_| Box::pin(std::future::ready(probed.load(SeqCst))));
        fails(&circuit, 3, Duration::ZERO);
        for _ in 0..2 {
            serves_reads.store(true, SeqCst);
            until_half_open(&circuit).await;
            serves_reads.store(false, SeqCst);
            fails(&circuit, 1, hour);
            assert!(circuit.is_open(), "only a probe got a reply since");
        }
        circuit.count(true);
        assert!(!circuit.is_open(), "a call that gets a reply closes it without a probe");
        fails(&circuit, 2, Duration::ZERO);
        assert!(!circuit.is_open(), "and it takes three failures again");
    }

    #[tokio::test]
    async fn a_probe_waits_as_long_as_the_calls_that_failed() {
        let (sender, mut waits) = tokio::sync::mpsc::unbounded_channel();
        let circuit = CircuitBreaker::new("test", move |patience| {
            sender.send(patience).expect("the test waits");
            Box::pin(std::future::ready(true))
        });
        fails(&circuit, 2, Duration::from_secs(3));
        fails(&circuit, 1, Duration::ZERO);
        assert_eq!(waits.recv().await, Some(Duration::from_secs(3)));
    }
}
