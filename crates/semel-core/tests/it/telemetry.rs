//! Metrics and logs are published under their documented names.

use std::{io, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{
    Engine, Fingerprint, Key, MemoryStore, OnLostOwner, Policy, Principal, RunError, Scope,
    WorkError, telemetry::name,
};

use super::in_own_process;

fn key(id: &str) -> Key {
    Scope::new("test", Principal::Anonymous, "work").key(id).expect("a valid key")
}

fn value(
    snapshotter: &Snapshotter,
    metric: &str,
    label: Option<(&str, &str)>,
) -> Option<DebugValue> {
    let all = snapshotter.snapshot().into_vec();
    all.into_iter().find_map(|(composite, _, _, value)| {
        let key = composite.key();
        let labelled = label.is_none_or(|(name, wanted)| {
            key.labels().any(|label| label.key() == name && label.value() == wanted)
        });
        (key.name() == metric && labelled).then_some(value)
    })
}

async fn run(engine: &Engine, id: &str) {
    let work = |_| async { Ok::<_, io::Error>(1u32) };
    engine.run(key(id), Fingerprint::of_bytes(b"x"), work).await.expect("the test continues");
}

/// An owner whose lease has ended is superseded by one that takes over; a follower of the second one waits.
async fn supersede(engine: &Engine, store: &MemoryStore) {
    let ok = |_| async { Ok::<_, io::Error>(1u32) };
    let fingerprint = Fingerprint::of_bytes(b"x");
    let lease = Duration::from_millis(100);
    let rerun = Policy::api().lease(lease).max_run(lease);
    let slow = engine.with_policy(rerun).expect("the test continues");
    let other =
        Engine::builder().store(store.clone()).policy(rerun).build().expect("the test continues");
    let (started, starts) = tokio::sync::oneshot::channel();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let work = move |_| async move {
        started.send(()).ok();
        finished.await.ok();
        Ok::<_, io::Error>(1u32)
    };
    let loser = tokio::spawn(async move { slow.run(key("c"), fingerprint, work).await });
    starts.await.expect("the test continues");
    let answers =
        tokio::join!(other.run(key("c"), fingerprint, ok), other.run(key("c"), fingerprint, ok));
    assert!(answers.0.is_ok() && answers.1.is_ok());
    finish.send(()).expect("the test continues");
    loser.await.expect("the test continues").expect("the test continues");
}

// One test, since each snapshot resets the counters.
#[test]
fn every_metric_of_a_run_is_published_under_its_name() {
    in_own_process("telemetry::every_metric_of_a_run_is_published_under_its_name", async {
        let recorder = DebuggingRecorder::new();
        let metrics = recorder.snapshotter();
        recorder.install().unwrap();
        let policy = Policy::api().on_lost_owner(OnLostOwner::Hold);
        let store = MemoryStore::new();
        let engine = Engine::builder()
            .store(store.clone())
            .policy(policy)
            .cleanup_every(Duration::from_millis(5))
            .build()
            .unwrap();
        replays_are_counted(&engine, &metrics).await;
        failures_are_counted(&engine, &metrics).await;
        times_are_sampled(&engine, &metrics).await;
        supersede(&engine, &store).await;
        takeovers_and_superseded_owners_are_counted(&metrics);
        for (metric, wanted) in [(name::RECORDS, 3.0), (name::UNKNOWN, 1.0), (name::DEAD, 0.0)] {
            until_gauge(wanted, metric, &metrics).await;
        }
    });
}

async fn replays_are_counted(engine: &Engine, metrics: &Snapshotter) {
    run(engine, "a").await;
    let counted = metrics.snapshot();
    assert!(format!("{counted:?}").contains(name::CACHE_MISS));
    run(engine, "a").await;
    let hit = value(metrics, name::CACHE_HIT, Some(("tier", "store")));
    assert_eq!(hit, Some(DebugValue::Counter(1)));
    let other = Fingerprint::of_bytes(b"y");
    let mismatch = engine.run(key("a"), other, |_| async { Ok::<_, io::Error>(1u32) }).await;
    assert!(matches!(mismatch, Err(RunError::Mismatch)));
    assert_eq!(value(metrics, name::KEY_COLLISION, None), Some(DebugValue::Counter(1)));
}

async fn failures_are_counted(engine: &Engine, metrics: &Snapshotter) {
    let failing =
        |_| async { Err::<u32, _>(WorkError::from(io::Error::from(io::ErrorKind::TimedOut))) };
    let unknown = engine.run(key("b"), Fingerprint::of_bytes(b"x"), failing).await;
    assert!(matches!(unknown, Err(RunError::Unknown)));
    let failures = value(metrics, name::FAILURES, Some(("class", "timeout")));
    assert_eq!(failures, Some(DebugValue::Counter(1)));
    assert_eq!(value(metrics, name::IN_FLIGHT, None), Some(DebugValue::Gauge(0.0.into())));
}

async fn times_are_sampled(engine: &Engine, metrics: &Snapshotter) {
    run(engine, "a").await;
    let latency = value(metrics, name::STORE_LATENCY, Some(("step", "claim")));
    assert!(matches!(latency, Some(DebugValue::Histogram(samples)) if samples.len() == 1));
    run(engine, "a").await;
    let age = value(metrics, name::DUPLICATE_AGE, None);
    assert!(matches!(age, Some(DebugValue::Histogram(samples)) if samples.len() == 1));
}

fn takeovers_and_superseded_owners_are_counted(metrics: &Snapshotter) {
    let counted: Vec<_> = metrics.snapshot().into_vec();
    let counter = |metric: &str| {
        counted.iter().find_map(|(key, _, _, value)| match value {
            DebugValue::Counter(count) if key.key().name() == metric => Some(*count),
            _ => None,
        })
    };
    assert_eq!(counter(name::TAKEOVERS), Some(1));
    assert_eq!(counter(name::SUPERSEDED), Some(1));
    assert!(counted.iter().any(|(key, ..)| key.key().name() == name::WAITERS));
}

async fn until_gauge(wanted: f64, metric: &str, metrics: &Snapshotter) {
    let gauge = || match value(metrics, metric, None) {
        Some(DebugValue::Gauge(value)) => value.into_inner(),
        _ => 0.0,
    };
    let mut current = gauge();
    for _ in 0..1000 {
        if current == wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        current = gauge();
    }
    assert_eq!(current, wanted, "{metric}");
}

#[test]
fn names_are_the_published_ones() {
    assert_eq!(name::IN_FLIGHT, "idempotency_in_flight");
    assert_eq!(name::WAITERS, "idempotency_waiters");
    assert_eq!(name::RECORDS, "idempotency_records");
    assert_eq!(name::UNKNOWN, "idempotency_unknown");
    assert_eq!(name::DEAD, "idempotency_dead");
    assert_eq!(name::BECAME_UNKNOWN, "idempotency_became_unknown_total");
    assert_eq!(name::BECAME_DEAD, "idempotency_became_dead_total");
    assert_eq!(name::CACHE_HIT, "idempotency_cache_hit_total");
    assert_eq!(name::CACHE_MISS, "idempotency_cache_miss_total");
    assert_eq!(name::KEY_COLLISION, "idempotency_key_collision_total");
    assert_eq!(name::OUTCOME_UNSTORED, "idempotency_outcome_unstored_total");
    assert_eq!(name::FAILURES, "idempotency_failures_total");
    assert_eq!(name::TAKEOVERS, "idempotency_takeovers_total");
    assert_eq!(name::SUPERSEDED, "idempotency_superseded_total");
    assert_eq!(name::STORE_LATENCY, "idempotency_store_latency_ms");
    assert_eq!(name::DUPLICATE_AGE, "idempotency_duplicate_age_seconds");
}
