//! The metrics of the layers over two stores are published under their documented names.

use std::{
    future::pending,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use metrics::{Counter, Gauge, Histogram, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{AtomicStorage, Registry};
use parking_lot::Mutex;
use semel_core::{
    __store_steps, Arbiter, ChangeFeed, Claim, ClaimRequest, CompleteRequest, Error, ErrorKind,
    FailbackWindow, Failover, Fingerprint, KeyHash, MemoryReplicaCache, MemoryStore, Nonce,
    OnLostOwner, Outcome, Replica, ReplicaCache, Result, Span, Stats, Store, StoreInfo, Terms,
    telemetry::name,
};

use super::in_own_process;

const HOUR: Span = Span::from_millis(3_600_000);

/// A recorder of counters and gauges. A `DebuggingRecorder` does not do, since its snapshots reset gauges.
struct RegistryRecorder(Registry<metrics::Key, AtomicStorage>);

static RECORDER: LazyLock<&'static RegistryRecorder> = LazyLock::new(|| {
    let recorder: &'static RegistryRecorder =
        Box::leak(Box::new(RegistryRecorder(Registry::atomic())));
    metrics::set_global_recorder(recorder).expect("no other recorder is set");
    recorder
});

impl Recorder for RegistryRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |it| Counter::from_arc(it.clone()))
    }
    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |it| Gauge::from_arc(it.clone()))
    }
    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl RegistryRecorder {
    /// The value of the counter or gauge with this label; -1 if there is none.
    fn value(&self, metric: &str, label: &str) -> f64 {
        let is_match =
            |key: &metrics::Key| key.name() == metric && key.labels().any(|it| it.value() == label);
        let mut value = -1.0;
        self.0.visit_counters(|key, it| {
            if is_match(key) {
                value = f64::from(
                    u32::try_from(it.load(SeqCst)).expect("a test counts to small numbers"),
                );
            }
        });
        self.0.visit_gauges(|key, it| {
            if is_match(key) {
                value = f64::from_bits(it.load(SeqCst));
            }
        });
        value
    }

    async fn until_value(&self, metric: &str, label: &str, wanted: f64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let value = self.value(metric, label);
            if value == wanted {
                return;
            }
            let late = Instant::now() > deadline;
            assert!(!late, "{metric} {label} is {value} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn unreachable<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, "unreachable"))
}

fn request() -> ClaimRequest {
    let terms = Terms {
        lease: HOUR,
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: HOUR,
        failure_retention: HOUR,
    };
    let (key, nonce) = (KeyHash::from_bytes(rand::random()), Nonce::random());
    ClaimRequest { key, fingerprint: Fingerprint::of_bytes(b"this"), nonce, terms, labels: None }
}

/// A front that can be unreachable, and whose writes can hang.
#[derive(Clone, Debug, Default)]
struct BreakableFront {
    cache: MemoryReplicaCache,
    down: Arc<AtomicBool>,
    writes_hang: Arc<AtomicBool>,
}

#[async_trait]
impl ReplicaCache for BreakableFront {
    fn name(&self) -> &'static str {
        "front"
    }
    fn change_feed(&self) -> Option<ChangeFeed> {
        None
    }
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        match self.down.load(SeqCst) {
            true => keys.iter().map(|_| unreachable()).collect(),
            false => self.cache.look(keys).await,
        }
    }
    async fn put(&self, copies: &[Replica], called_at: Instant) -> Vec<Result<()>> {
        match (self.down.load(SeqCst), self.writes_hang.load(SeqCst)) {
            (true, _) => copies.iter().map(|_| unreachable()).collect(),
            (false, true) => pending().await,
            (false, false) => self.cache.put(copies, called_at).await,
        }
    }
    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        self.cache.remove(key).await
    }
}

async fn completed(store: &dyn Store) -> ClaimRequest {
    let request = request();
    let Claim::Granted(lease) = store.claim(&request).await.unwrap() else { panic!("a new key") };
    let outcome = Arc::new(Outcome::success("done"));
    store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    ClaimRequest { nonce: Nonce::random(), ..request }
}

#[test]
fn an_arbiter_counts_reads_and_writes_of_its_front_and_shows_its_circuit() {
    in_own_process(
        "layer_metrics::an_arbiter_counts_reads_and_writes_of_its_front_and_shows_its_circuit",
        async {
            let metrics = *RECORDER;
            let (front, reads, writes) =
                (BreakableFront::default(), name::FRONT_LOOKS, name::FRONT_PUTS);
            let store = Arbiter::new(front.clone(), MemoryStore::new());
            metrics.until_value(name::CIRCUIT_OPEN, "front", 0.0).await;
            let recorded = completed(&store).await;
            metrics.until_value(reads, "missed", 1.0).await;
            metrics.until_value(writes, "done", 1.0).await;
            assert!(matches!(store.claim(&recorded).await.unwrap(), Claim::Replay(_)));
            metrics.until_value(reads, "found", 1.0).await;

            // One read and two writes that fail open the circuit.
            let Claim::Granted(one) = store.claim(&request()).await.unwrap() else {
                panic!("a new key")
            };
            let Claim::Granted(two) = store.claim(&request()).await.unwrap() else {
                panic!("a new key")
            };
            front.down.store(true, SeqCst);
            for owner in [one.owner, two.owner] {
                let outcome = Arc::new(Outcome::success("done"));
                store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
            }
            metrics.until_value(writes, "failed", 2.0).await;
            store.claim(&request()).await.unwrap();
            metrics.until_value(reads, "failed", 1.0).await;
            metrics.until_value(name::CIRCUIT_OPEN, "front", 1.0).await;
            store.claim(&request()).await.unwrap();
            metrics.until_value(reads, "skipped", 1.0).await;
            front.down.store(false, SeqCst);
            metrics.until_value(name::CIRCUIT_OPEN, "front", 0.0).await;

            front.writes_hang.store(true, SeqCst);
            for _ in 0..1030 {
                completed(&store).await;
            }
            metrics.until_value(writes, "dropped", 6.0).await;
        },
    );
}

/// A store that can be unreachable.
#[derive(Clone, Debug)]
struct BreakableStore {
    name: &'static str,
    store: MemoryStore,
    cut: Arc<AtomicBool>,
    /// The failback window.
    span: Arc<Mutex<Duration>>,
}

impl BreakableStore {
    fn new(name: &'static str) -> Self {
        Self { name, store: MemoryStore::new(), cut: Arc::default(), span: Arc::default() }
    }
}

trait UnreachableReply {
    fn unreachable() -> Self;
}

impl<T> UnreachableReply for Result<T> {
    fn unreachable() -> Self {
        unreachable()
    }
}

impl<T> UnreachableReply for Vec<Result<T>> {
    fn unreachable() -> Self {
        vec![unreachable()]
    }
}

macro_rules! breakable_store {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for BreakableStore {
            fn info(&self) -> StoreInfo {
                StoreInfo { name: self.name, ..self.store.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                match self.cut.load(SeqCst) {
                    true => UnreachableReply::unreachable(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
__store_steps!(breakable_store);

#[async_trait]
impl FailbackWindow for BreakableStore {
    async fn remaining(&self) -> Result<Option<Duration>> {
        if self.cut.load(SeqCst) { unreachable() } else { Ok(Some(*self.span.lock())) }
    }
    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.cut.load(SeqCst) {
            return unreachable();
        }
        *self.span.lock() = span;
        Ok(span)
    }
}

#[test]
fn a_failover_counts_unprotected_keys_and_shows_its_circuits() {
    in_own_process(
        "layer_metrics::a_failover_counts_unprotected_keys_and_shows_its_circuits",
        async {
            let metrics = *RECORDER;
            let (primary, secondary) =
                (BreakableStore::new("first"), BreakableStore::new("second"));
            let builder = Failover::builder(primary.clone(), secondary.clone());
            let store = builder.allow_duplicate_execution_on_failover(true).build().unwrap();
            metrics.until_value(name::CIRCUIT_OPEN, "first", 0.0).await;
            metrics.until_value(name::CIRCUIT_OPEN, "second", 0.0).await;
            primary.cut.store(true, SeqCst);
            for _ in 0..3 {
                assert!(matches!(store.claim(&request()).await.unwrap(), Claim::Granted(_)));
            }
            metrics.until_value(name::UNPROTECTED, "primary_unreachable", 3.0).await;
            metrics.until_value(name::CIRCUIT_OPEN, "first", 1.0).await;
            primary.cut.store(false, SeqCst);
            metrics.until_value(name::CIRCUIT_OPEN, "first", 0.0).await;

            // The secondary may have any key now, and does not reply.
            secondary.cut.store(true, SeqCst);
            for _ in 0..3 {
                assert!(matches!(store.claim(&request()).await.unwrap(), Claim::Granted(_)));
            }
            metrics.until_value(name::UNPROTECTED, "secondary_unasked", 3.0).await;
            metrics.until_value(name::CIRCUIT_OPEN, "second", 1.0).await;
        },
    );
}

#[test]
fn names_are_the_published_ones() {
    assert_eq!(name::CIRCUIT_OPEN, "idempotency_circuit_open");
    assert_eq!(name::FRONT_LOOKS, "idempotency_front_looks_total");
    assert_eq!(name::FRONT_PUTS, "idempotency_front_puts_total");
    assert_eq!(name::UNPROTECTED, "idempotency_unprotected_total");
}
