//! Measures every call of a store.

#![deny(clippy::missing_trait_methods)]

use std::time::Instant;

use async_trait::async_trait;

use crate::{__store_steps, Result, Stats, Store, StoreInfo, telemetry::StoreCall};

/// A store whose calls are measured as `idempotency_store_latency_ms`. The engine wraps its own.
#[derive(Clone, Debug)]
pub struct Observed<S> {
    store: S,
    calls: Calls,
}

impl<S: Store> Observed<S> {
    /// Measures `store` under its own name.
    pub fn new(store: S) -> Self {
        let calls = Calls::new(store.info().name);
        Self { store, calls }
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
                answer
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}

__store_steps!(measured);
