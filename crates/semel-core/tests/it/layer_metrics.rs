//! What the layers over two stores count is published under its name.

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

/// What was published since the process began. It is one for all tests, so each has labels or stores of its
/// own. The recorder for debugging would not do: its snapshots set gauges back.
struct Published(Registry<metrics::Key, AtomicStorage>);

static PUBLISHED: LazyLock<&'static Published> = LazyLock::new(|| {
    let published: &'static Published = Box::leak(Box::new(Published(Registry::atomic())));
    metrics::set_global_recorder(published).expect("the only one");
    published
});

impl Recorder for Published {
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

impl Published {
    /// The counter or gauge with this label; -1 for none.
    fn value(&self, metric: &str, label: &str) -> f64 {
        let is_meant =
            |key: &metrics::Key| key.name() == metric && key.labels().any(|it| it.value() == label);
        let mut value = -1.0;
        self.0.visit_counters(|key, it| {
            if is_meant(key) {
                value = f64::from(u32::try_from(it.load(SeqCst)).expect("a test counts little"));
            }
        });
        self.0.visit_gauges(|key, it| {
            if is_meant(key) {
                value = f64::from_bits(it.load(SeqCst));
            }
        });
        value
    }

    async fn shows(&self, metric: &str, label: &str, wanted: f64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let shown = self.value(metric, label);
            if shown == wanted {
                return;
            }
            let late = Instant::now() > deadline;
            assert!(!late, "{metric} {label} is {shown} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn gone<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, "it is gone"))
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

/// A front that can be switched off, and whose puts can stand still.
#[derive(Clone, Debug, Default)]
struct Front {
    cache: MemoryReplicaCache,
    down: Arc<AtomicBool>,
    holds: Arc<AtomicBool>,
}

#[async_trait]
impl ReplicaCache for Front {
    fn name(&self) -> &'static str {
        "front"
    }
    fn change_feed(&self) -> Option<ChangeFeed> {
        None
    }
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        match self.down.load(SeqCst) {
            true => keys.iter().map(|_| gone()).collect(),
            false => self.cache.look(keys).await,
        }
    }
    async fn put(&self, copies: &[Replica], asked: Instant) -> Vec<Result<()>> {
        match (self.down.load(SeqCst), self.holds.load(SeqCst)) {
            (true, _) => copies.iter().map(|_| gone()).collect(),
            (false, true) => pending().await,
            (false, false) => self.cache.put(copies, asked).await,
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
fn an_arbiter_counts_looks_and_puts_and_shows_its_circuit() {
    in_own_process(
        "layer_metrics::an_arbiter_counts_looks_and_puts_and_shows_its_circuit",
        async {
            let metrics = *PUBLISHED;
            let (front, looks, puts) = (Front::default(), name::FRONT_LOOKS, name::FRONT_PUTS);
            let store = Arbiter::new(front.clone(), MemoryStore::new());
            metrics.shows(name::CIRCUIT_OPEN, "front", 0.0).await;
            let known = completed(&store).await;
            metrics.shows(looks, "missed", 1.0).await;
            metrics.shows(puts, "done", 1.0).await;
            assert!(matches!(store.claim(&known).await.unwrap(), Claim::Replay(_)));
            metrics.shows(looks, "found", 1.0).await;

            // One look and two puts that fail open the circuit.
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
            metrics.shows(puts, "failed", 2.0).await;
            store.claim(&request()).await.unwrap();
            metrics.shows(looks, "failed", 1.0).await;
            metrics.shows(name::CIRCUIT_OPEN, "front", 1.0).await;
            store.claim(&request()).await.unwrap();
            metrics.shows(looks, "skipped", 1.0).await;
            front.down.store(false, SeqCst);
            metrics.shows(name::CIRCUIT_OPEN, "front", 0.0).await;

            front.holds.store(true, SeqCst);
            for _ in 0..1030 {
                completed(&store).await;
            }
            metrics.shows(puts, "dropped", 6.0).await;
        },
    );
}

/// One node's way to a store, which can be cut.
#[derive(Clone, Debug)]
struct Way {
    name: &'static str,
    store: MemoryStore,
    cut: Arc<AtomicBool>,
    /// For how long it has to be asked.
    span: Arc<Mutex<Duration>>,
}

impl Way {
    fn to(name: &'static str) -> Self {
        Self { name, store: MemoryStore::new(), cut: Arc::default(), span: Arc::default() }
    }
}

trait Fails {
    fn failed() -> Self;
}

impl<T> Fails for Result<T> {
    fn failed() -> Self {
        gone()
    }
}

impl<T> Fails for Vec<Result<T>> {
    fn failed() -> Self {
        vec![gone()]
    }
}

macro_rules! way {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Way {
            fn info(&self) -> StoreInfo {
                StoreInfo { name: self.name, ..self.store.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                match self.cut.load(SeqCst) {
                    true => Fails::failed(),
                    false => self.store.$step(request).await,
                }
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
__store_steps!(way);

#[async_trait]
impl FailbackWindow for Way {
    async fn remaining(&self) -> Result<Option<Duration>> {
        if self.cut.load(SeqCst) { gone() } else { Ok(Some(*self.span.lock())) }
    }
    async fn extend_to(&self, span: Duration) -> Result<Duration> {
        if self.cut.load(SeqCst) {
            return gone();
        }
        *self.span.lock() = span;
        Ok(span)
    }
}

#[test]
fn a_failover_counts_what_it_cannot_protect_and_shows_its_circuits() {
    in_own_process(
        "layer_metrics::a_failover_counts_what_it_cannot_protect_and_shows_its_circuits",
        async {
            let metrics = *PUBLISHED;
            let (primary, secondary) = (Way::to("first"), Way::to("second"));
            let builder = Failover::builder(primary.clone(), secondary.clone());
            let store = builder.allow_duplicate_execution_on_failover(true).build().unwrap();
            metrics.shows(name::CIRCUIT_OPEN, "first", 0.0).await;
            metrics.shows(name::CIRCUIT_OPEN, "second", 0.0).await;
            primary.cut.store(true, SeqCst);
            for _ in 0..3 {
                assert!(matches!(store.claim(&request()).await.unwrap(), Claim::Granted(_)));
            }
            metrics.shows(name::UNPROTECTED, "primary_unreachable", 3.0).await;
            metrics.shows(name::CIRCUIT_OPEN, "first", 1.0).await;
            primary.cut.store(false, SeqCst);
            metrics.shows(name::CIRCUIT_OPEN, "first", 0.0).await;

            // The secondary may have any key now, and is not there to say so.
            secondary.cut.store(true, SeqCst);
            for _ in 0..3 {
                assert!(matches!(store.claim(&request()).await.unwrap(), Claim::Granted(_)));
            }
            metrics.shows(name::UNPROTECTED, "secondary_unasked", 3.0).await;
            metrics.shows(name::CIRCUIT_OPEN, "second", 1.0).await;
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
