//! A key that waits for an operator is logged and counted once, as soon as a process sees it.

use std::time::{Duration, Instant};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{
    ClaimRequest, Decision, Effect, Engine, Fingerprint, Key, MemoryStore, Nonce, OnLostOwner,
    Policy, Principal, Resolution, ResolveRequest, RunError, Scope, Store, WorkError,
    telemetry::name,
};

use super::{LogBuffer, in_own_process};

/// Sums of the counters so far, since a snapshot has only what was counted since the last one.
struct StuckMetrics {
    metrics: Snapshotter,
    unknown: u64,
    dead: u64,
    gauge: f64,
}

impl StuckMetrics {
    fn update(&mut self) -> (u64, u64) {
        for (key, _, _, value) in self.metrics.snapshot().into_vec() {
            match (key.key().name(), value) {
                (name::BECAME_UNKNOWN, DebugValue::Counter(count)) => self.unknown += count,
                (name::BECAME_DEAD, DebugValue::Counter(count)) => self.dead += count,
                (name::UNKNOWN, DebugValue::Gauge(value)) => self.gauge = value.into_inner(),
                _ => {}
            }
        }
        (self.unknown, self.dead)
    }
}

fn key(id: &str) -> Key {
    Scope::new("test", Principal::Anonymous, "work").key(id).unwrap()
}

async fn fail(engine: &Engine, id: &str) -> RunError {
    let work = |_| async { Err::<u32, _>(WorkError::indeterminate("the reply was cut off")) };
    engine.run(key(id), Fingerprint::of_bytes(b"x"), work).await.unwrap_err()
}

#[test]
fn a_key_that_waits_for_an_operator_is_logged_and_counted_once_and_at_once() {
    in_own_process(
        "stuck_keys::a_key_that_waits_for_an_operator_is_logged_and_counted_once_and_at_once",
        async {
            let (recorder, log) = (DebuggingRecorder::new(), LogBuffer::default());
            let metrics = recorder.snapshotter();
            let mut counted = StuckMetrics { metrics, unknown: 0, dead: 0, gauge: 0.0 };
            recorder.install().unwrap();
            tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).init();
            let store = MemoryStore::new();
            let engine =
                |policy| Engine::builder().store(store.clone()).policy(policy).build().unwrap();

            // The owner reports it, long before any cleanup.
            let hold = Policy::api().on_lost_owner(OnLostOwner::Hold);
            let one = engine(hold);
            assert!(matches!(fail(&one, "a").await, RunError::Unknown));
            let short = one.key_hash(&key("a")).to_string();
            let line = ["WARN", &short, "waits for an operator", "semel keys get"];
            assert_eq!((counted.update(), log.count(&line)), ((1, 0), 1));
            assert_eq!(counted.gauge, 1.0);
            for _ in 0..3 {
                assert!(matches!(fail(&one, "a").await, RunError::Unknown));
            }
            assert_eq!((counted.update(), log.count(&line)), ((1, 0), 1));
            // Another process does not know that the first one has already logged and counted the key.
            let two = engine(hold);
            for _ in 0..3 {
                assert!(matches!(fail(&two, "a").await, RunError::Unknown));
            }
            assert_eq!((counted.update(), log.count(&line)), ((2, 0), 2));

            // The last attempt has ended: the next request finds the key Dead.
            let capped = engine(Policy::api().max_attempts(1).backoff(Duration::ZERO));
            assert!(matches!(fail(&capped, "b").await, RunError::Retry(_)));
            for _ in 0..3 {
                assert!(matches!(fail(&capped, "b").await, RunError::Dead));
            }
            let short = one.key_hash(&key("b")).to_string();
            assert_eq!(counted.update(), (2, 1));
            assert_eq!(log.count(&["WARN", &short, "out of attempts"]), 1);
            // An operator lets it run once more, and its attempts are used up again.
            let hash = one.key_hash(&key("b"));
            let record = store.get(&hash).await.unwrap().unwrap().record;
            let rerun = ResolveRequest {
                key: hash,
                seen_nonce: record.nonce,
                seen_token: record.token,
                decision: Decision::Reopen(Effect::Possible),
            };
            assert_eq!(capped.resolve(&rerun, "INC-7").await.unwrap(), Resolution::Done);
            assert!(matches!(fail(&capped, "b").await, RunError::Retry(_)));
            for _ in 0..3 {
                assert!(matches!(fail(&capped, "b").await, RunError::Dead));
            }
            assert_eq!(counted.update(), (2, 2));
            assert_eq!(log.count(&["WARN", &short, "out of attempts"]), 2);

            // No request comes for the key again: cleanup finds that its owner was lost.
            let lost = ClaimRequest {
                key: one.key_hash(&key("c")),
                fingerprint: Fingerprint::of_bytes(b"x"),
                nonce: Nonce::random(),
                terms: hold.lease(Duration::from_millis(20)).terms(),
                labels: None,
            };
            store.claim(&lost).await.unwrap();
            let cleaning =
                Engine::builder().store(store.clone()).cleanup_every(Duration::from_millis(5));
            let _cleaning = cleaning.build().unwrap();
            let began = Instant::now();
            while counted.update() != (3, 2) {
                assert!(began.elapsed() < Duration::from_secs(20), "{:?}", counted.update());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(log.count(&["WARN", "1 operations lost their owner", "semel keys list"]), 1);
        },
    );
}
