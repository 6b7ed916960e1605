//! What a process shows of a store that it shares with others.

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

/// A store whose chores this process does, or another.
#[derive(Clone, Debug, Default)]
struct Shared {
    records: MemoryStore,
    is_led_here: Arc<AtomicBool>,
}

macro_rules! shared {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Shared {
            fn info(&self) -> StoreInfo {
                StoreInfo { shared: true, ..self.records.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                shared!(@ $step self request)
            })*
            async fn stats(&self) -> Result<Stats> {
                self.records.stats().await
            }
        }
    };
    (@ lead $self:ident $term:ident) => {{
        assert!(!$term.is_zero());
        Ok($self.is_led_here.load(SeqCst))
    }};
    (@ $step:ident $self:ident $request:ident) => {
        $self.records.$step($request).await
    };
}

__store_steps!(shared);

async fn shows(metrics: &Snapshotter, metric: &str, wanted: f64) {
    let is_shown = || {
        let all = metrics.snapshot().into_vec();
        let mut found = all.iter().filter(|(key, ..)| key.key().name() == metric);
        found.any(|(.., value)| *value == DebugValue::Gauge(wanted.into()))
    };
    let began = Instant::now();
    while !is_shown() {
        assert!(began.elapsed() < Duration::from_secs(20), "{metric} is not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An alert on a count that nobody updates would never end.
#[test]
fn who_no_longer_cleans_up_shows_nothing_of_what_it_counted() {
    in_own_process(
        "cleanup_gauges::who_no_longer_cleans_up_shows_nothing_of_what_it_counted",
        async {
            let recorder = DebuggingRecorder::new();
            let metrics = recorder.snapshotter();
            recorder.install().unwrap();
            let store = Shared::default();
            let builder = Engine::builder().store(store.clone());
            let engine = builder.cleanup_every(Duration::from_millis(5)).build().unwrap();
            let key = Scope::new("test", Principal::Anonymous, "work").key("k").unwrap();
            let work = |_| async { Ok::<_, WorkError>(1u32) };
            engine.run(key, Fingerprint::of_bytes(b"x"), work).await.unwrap();
            store.is_led_here.store(true, SeqCst);
            shows(&metrics, name::CLEANUP_LEADER, 1.0).await;
            shows(&metrics, name::RECORDS, 1.0).await;
            store.is_led_here.store(false, SeqCst);
            shows(&metrics, name::CLEANUP_LEADER, 0.0).await;
            shows(&metrics, name::RECORDS, 0.0).await;
        },
    );
}
