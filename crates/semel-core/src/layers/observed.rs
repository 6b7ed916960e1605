//! The observed layer: measures every call of a store, and logs failures.

#![deny(clippy::missing_trait_methods)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{__store_steps, Error, Result, Stats, Store, StoreInfo, telemetry::StoreCall};

/// A store whose calls are measured as `idempotency_store_latency_ms`, and whose failures are logged. The
/// engine wraps its store in one.
#[derive(Clone, Debug)]
pub struct Observed<S> {
    store: S,
    metrics: StepMetrics,
    failures: FailureLog,
}

impl<S: Store> Observed<S> {
    /// Measures `store` under its own name.
    pub fn new(store: S) -> Self {
        let name = store.info().name;
        Self { store, metrics: StepMetrics::new(name), failures: FailureLog::new(name) }
    }
}

/// Logs one failure per second at most, since a store that is down fails every call.
#[derive(Clone, Debug)]
struct FailureLog {
    store: &'static str,
    since: Instant,
    /// When the last line was logged, in milliseconds after `since`; 0 if none was.
    logged_at: Arc<AtomicU64>,
}

impl FailureLog {
    const PAUSE: Duration = Duration::from_secs(1);

    fn new(store: &'static str) -> Self {
        // In the past, so that `logged_at` is never 0 after a log line.
        let since = Instant::now().checked_sub(Self::PAUSE).unwrap_or_else(Instant::now);
        Self { store, since, logged_at: Arc::default() }
    }

    fn log(&self, step: &'static str, error: &Error) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.logged_at.load(Relaxed);
        let is_due = last == 0 || now >= last + Self::PAUSE.as_secs() * 1000;
        if is_due && self.logged_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!(store = self.store, step, %error, "the store failed");
        }
    }
}

/// The error of a reply, or the first error of a batch of replies.
trait ReplyError {
    fn error(&self) -> Option<&Error>;
}

impl<T> ReplyError for Result<T> {
    fn error(&self) -> Option<&Error> {
        self.as_ref().err()
    }
}

impl<T> ReplyError for Vec<Result<T>> {
    fn error(&self) -> Option<&Error> {
        self.iter().find_map(ReplyError::error)
    }
}

macro_rules! measured {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        /// One metric per step, built once: a call must not build its labels.
        #[derive(Clone, Debug)]
        struct StepMetrics {
            $($step: StoreCall,)*
        }

        impl StepMetrics {
            fn new(store: &'static str) -> Self {
                Self { $($step: StoreCall::new(store, stringify!($step)),)* }
            }
        }

        #[async_trait]
        impl<S: Store> Store for Observed<S> {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $reply {
                let started = Instant::now();
                let reply = self.store.$step(request).await;
                self.metrics.$step.took(started.elapsed());
                if let Some(error) = reply.error() {
                    self.failures.log(stringify!($step), error);
                }
                reply
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}

__store_steps!(measured);
