//! Measures every call of a store, and tells when one fails.

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
/// engine wraps its own.
#[derive(Clone, Debug)]
pub struct Observed<S> {
    store: S,
    calls: Calls,
    failures: Failures,
}

impl<S: Store> Observed<S> {
    /// Measures `store` under its own name.
    pub fn new(store: S) -> Self {
        let name = store.info().name;
        Self { store, calls: Calls::new(name), failures: Failures::of(name) }
    }
}

/// A store that is down fails every call: one line in a while is enough to be woken by.
#[derive(Clone, Debug)]
struct Failures {
    store: &'static str,
    since: Instant,
    /// When the last line was written, in milliseconds from `since` on; 0: none was.
    told: Arc<AtomicU64>,
}

impl Failures {
    const PAUSE: Duration = Duration::from_secs(1);

    fn of(store: &'static str) -> Self {
        // In the past, so that no time is 0.
        let since = Instant::now().checked_sub(Self::PAUSE).unwrap_or_else(Instant::now);
        Self { store, since, told: Arc::default() }
    }

    fn tell(&self, step: &'static str, error: &Error) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let told = self.told.load(Relaxed);
        let is_quiet = told == 0 || now >= told + Self::PAUSE.as_secs() * 1000;
        if is_quiet && self.told.compare_exchange(told, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!(store = self.store, step, %error, "the store failed");
        }
    }
}

/// What went wrong in a call, or in the first of a batch that did.
trait Failed {
    fn error(&self) -> Option<&Error>;
}

impl<T> Failed for Result<T> {
    fn error(&self) -> Option<&Error> {
        self.as_ref().err()
    }
}

impl<T> Failed for Vec<Result<T>> {
    fn error(&self) -> Option<&Error> {
        self.iter().find_map(Failed::error)
    }
}

macro_rules! measured {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        /// One metric per step, named once: a call must not build its labels anew.
        #[derive(Clone, Debug)]
        struct Calls {
            $($step: StoreCall,)*
        }

        impl Calls {
            fn new(store: &'static str) -> Self {
                Self { $($step: StoreCall::new(store, stringify!($step)),)* }
            }
        }

        #[async_trait]
        impl<S: Store> Store for Observed<S> {
            fn info(&self) -> StoreInfo {
                self.store.info()
            }
            $(async fn $step(&self, request: $request) -> $answer {
                let started = Instant::now();
                let answer = self.store.$step(request).await;
                self.calls.$step.took(started.elapsed());
                if let Some(error) = answer.error() {
                    self.failures.tell(stringify!($step), error);
                }
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}

__store_steps!(measured);
