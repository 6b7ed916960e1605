//! What requests show about the health of the store. A probe that reads an absent record may succeed although the disk
//! is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::HeaderMap;
use semel::http::header::IDEMPOTENT_REPLAYED;

/// What the last protected responses show about the store. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreHealth(Arc<HealthState>);

#[derive(Debug)]
struct HealthState {
    started: Instant,
    /// True if replays may come from a cache: then they prove nothing about the store.
    cached: bool,
    /// When the store last failed a request, in milliseconds since `started`; 0 if it has served one since.
    failed_ms: AtomicU64,
}

impl StoreHealth {
    /// How long a failure counts if no request proves that the store has recovered.
    const MEMORY: Duration = Duration::from_secs(5);

    pub(super) fn new(cached: bool) -> Self {
        Self(Arc::new(HealthState {
            started: Instant::now(),
            cached,
            failed_ms: AtomicU64::new(0),
        }))
    }

    /// Takes a response into account. `problem` is set if the gateway made the response: headers may be the upstream's.
    pub(super) fn answered(&self, problem: Option<&str>, headers: &HeaderMap) {
        let may_recover = !self.0.cached && self.0.failed_ms.load(Relaxed) > 0;
        match problem {
            Some("store-unavailable") => self.0.failed_ms.store(self.now(), Relaxed),
            // A replay was read back from the store, which proves that it works; a write that was accepted does not.
            None if may_recover && headers.contains_key(IDEMPOTENT_REPLAYED) => {
                self.0.failed_ms.store(0, Relaxed);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        let failed = self.0.failed_ms.load(Relaxed);
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

    fn answered(health: &StoreHealth, problem: Option<&str>, replayed: bool) -> bool {
        let mark = (IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        health.answered(problem, &HeaderMap::from_iter(replayed.then_some(mark)));
        health.is_healthy()
    }

    #[test]
    fn a_replay_from_a_cache_does_not_prove_the_store_healthy() {
        let health = StoreHealth::new(true);
        assert!(!answered(&health, Some("store-unavailable"), false));
        assert!(!answered(&health, None, true));
    }

    #[test]
    fn a_failure_counts_until_an_outcome_is_read_back() {
        let health = StoreHealth::new(false);
        let answered = |problem, replayed| answered(&health, problem, replayed);
        assert!(health.is_healthy());
        assert!(!answered(Some("store-unavailable"), false));
        assert!(!answered(Some("principal-missing"), false), "it did not use the store");
        assert!(!answered(None, false), "it may not have used the store");
        assert!(answered(None, true));
    }
}
