//! Metrics and logs are published under their documented names.

use std::{io, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{
    Engine, Fingerprint, Key, MemoryStore, OnLostOwner, Policy, Principal, RunError, Scope,
    WorkError, telemetry::name,
};

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

// One test: the recorder is the process's, and each snapshot takes what was counted since the last.
#[tokio::test]
async fn every_metric_of_a_run_is_published_under_its_name() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();
    let policy = Policy::api().on_lost_owner(OnLostOwner::Hold);
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .policy(policy)
        .cleanup_every(Duration::from_millis(5))
        .build()
        .unwrap();
    let ok = |_| async { Ok::<_, io::Error>(1u32) };
    let asked = Fingerprint::of_bytes(b"x");

    engine.run(key("a"), asked, ok).await.unwrap();
    let counted = metrics.snapshot();
    assert!(format!("{counted:?}").contains(name::CACHE_MISS));
    engine.run(key("a"), asked, ok).await.unwrap();
    assert_eq!(
        value(&metrics, name::CACHE_HIT, Some(("tier", "store"))),
        Some(DebugValue::Counter(1))
    );
    let mismatch = engine.run(key("a"), Fingerprint::of_bytes(b"y"), ok).await;
    assert!(matches!(mismatch, Err(RunError::Mismatch)));
    assert_eq!(value(&metrics, name::KEY_COLLISION, None), Some(DebugValue::Counter(1)));

    let failing =
        |_| async { Err::<u32, _>(WorkError::from(io::Error::from(io::ErrorKind::TimedOut))) };
    let unknown = engine.run(key("b"), asked, failing).await;
    assert!(matches!(unknown, Err(RunError::Unknown)));
    assert_eq!(
        value(&metrics, name::FAILURES, Some(("class", "timeout"))),
        Some(DebugValue::Counter(1))
    );
    assert_eq!(value(&metrics, name::IN_FLIGHT, None), Some(DebugValue::Gauge(0.0.into())));

    engine.run(key("a"), asked, ok).await.unwrap();
    let latency = value(&metrics, name::STORE_LATENCY, Some(("step", "claim")));
    assert!(matches!(latency, Some(DebugValue::Histogram(samples)) if samples.len() == 1));
    engine.run(key("a"), asked, ok).await.unwrap();
    let age = value(&metrics, name::DUPLICATE_AGE, None);
    assert!(matches!(age, Some(DebugValue::Histogram(samples)) if samples.len() == 1));

    let gauge = |metric: &str| match value(&metrics, metric, None) {
        Some(DebugValue::Gauge(value)) => value.into_inner(),
        _ => 0.0,
    };
    for (metric, wanted) in [(name::RECORDS, 2.0), (name::UNKNOWN, 1.0), (name::DEAD, 0.0)] {
        let mut seen = gauge(metric);
        for _ in 0..1000 {
            if seen == wanted {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen = gauge(metric);
        }
        assert_eq!(seen, wanted, "{metric}");
    }
}

#[test]
fn names_are_the_published_ones() {
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
