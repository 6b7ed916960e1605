//! The gauges of the cleanup, on a store that several processes share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{
    __store_steps, Engine, Fingerprint, MemoryStore, Principal, Result, Scope, Stats, Store,
    StoreInfo, WorkError, telemetry::name,
};

use super::in_own_process;

/// A shared store whose maintenance this process does, or another one.
#[derive(Clone, Debug, Default)]
struct LedStore {
    records: MemoryStore,
    is_leader: Arc<AtomicBool>,
}

macro_rules! led_store {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for LedStore {
            fn info(&self) -> StoreInfo {
                StoreInfo { shared: true, ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                led_store!(@ $step self request)
            })*
            async fn stats(&self) -> Result<Stats> {
                self.records.stats().await
            }
        }
    };
    (@ lead $self:ident $term:ident) => {{
        assert!(!$term.is_zero());
        Ok($self.is_leader.load(SeqCst))
    }};
    (@ $step:ident $self:ident $request:ident) => {
        $self.records.$step($request).await
    };
}

__store_steps!(led_store);

async fn until_gauge(metrics: &Snapshotter, metric: &str, wanted: f64) {
    let has_value = || {
        let all = metrics.snapshot().into_vec();
        let mut gauges = all.iter().filter(|(key, ..)| key.key().name() == metric);
        gauges.any(|(.., value)| *value == DebugValue::Gauge(wanted.into()))
    };
    let began = Instant::now();
    while !has_value() {
        assert!(began.elapsed() < Duration::from_secs(20), "{metric} is not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An alert on a gauge that no process updates would never end.
#[test]
fn a_process_that_stops_cleaning_up_resets_its_gauges() {
    in_own_process("cleanup_gauges::a_process_that_stops_cleaning_up_resets_its_gauges", async {
        let recorder = DebuggingRecorder::new();
        let metrics = recorder.snapshotter();
        recorder.install().unwrap();
        let store = LedStore::default();
        let builder = Engine::builder().store(store.clone());
        let engine = builder.cleanup_every(Duration::from_millis(5)).build().unwrap();
        let key = Scope::new("test", Principal::Anonymous, "work").key("k").unwrap();
        let work = |_| async { Ok::<_, WorkError>(1u32) };
        engine.run(key, Fingerprint::of_bytes(b"x"), work).await.unwrap();
        store.is_leader.store(true, SeqCst);
        until_gauge(&metrics, name::CLEANUP_LEADER, 1.0).await;
        until_gauge(&metrics, name::RECORDS, 1.0).await;
        store.is_leader.store(false, SeqCst);
        until_gauge(&metrics, name::CLEANUP_LEADER, 0.0).await;
        until_gauge(&metrics, name::RECORDS, 0.0).await;
    });
}
