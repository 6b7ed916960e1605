//! Whether requests find their store. Reading a record that is not there, as a probe does, may work on a disk
//! that has gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::HeaderMap;
use semel::http::header::{IDEMPOTENCY_KEY, SEMEL_STATUS};

/// What the last guarded answers say about the store. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreHealth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    /// When a request last found no store, in milliseconds from `started` on; 0: one has found it since.
    failed: AtomicU64,
}

impl StoreHealth {
    /// For so long a failure counts if no request comes to prove otherwise.
    const MEMORY: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { started: Instant::now(), failed: AtomicU64::new(0) }))
    }

    /// Learns from an answer.
    pub(super) fn answered(&self, headers: &HeaderMap) {
        let has_failed = self.0.failed.load(Relaxed) > 0;
        match headers.get(SEMEL_STATUS) {
            Some(status) if status == "store-unavailable" => {
                self.0.failed.store(self.now(), Relaxed);
            }
            None if has_failed && headers.contains_key(IDEMPOTENCY_KEY) => {
                self.0.failed.store(0, Relaxed);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn is_well(&self) -> bool {
        let failed = self.0.failed.load(Relaxed);
        failed == 0 || self.now() > failed + Self::MEMORY.as_secs() * 1000
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_failure_counts_until_a_request_finds_its_store() {
        let health = StoreHealth::new();
        let answered = |name, value| {
            health.answered(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))]));
            health.is_well()
        };
        assert!(health.is_well());
        assert!(!answered(SEMEL_STATUS, "store-unavailable"));
        assert!(!answered(SEMEL_STATUS, "principal-missing"), "that one asked no store");
        assert!(answered(IDEMPOTENCY_KEY, "k"));
    }
}
