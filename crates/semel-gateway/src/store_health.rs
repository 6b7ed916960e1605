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
use semel::http::header::IDEMPOTENT_REPLAYED;

/// What the last guarded answers say about the store. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreHealth(Arc<HealthState>);

#[derive(Debug)]
struct HealthState {
    started: Instant,
    /// Replays may come from a cache, and prove nothing then.
    cached: bool,
    /// When a request last found no store, in milliseconds from `started` on; 0: one has found it since.
    failed: AtomicU64,
}

impl StoreHealth {
    /// For so long a failure counts if no request comes to prove otherwise.
    const MEMORY: Duration = Duration::from_secs(5);

    pub(super) fn new(cached: bool) -> Self {
        Self(Arc::new(HealthState { started: Instant::now(), cached, failed: AtomicU64::new(0) }))
    }

    /// Learns from an answer, and from the problem if it is one of ours: headers may be the upstream's.
    pub(super) fn answered(&self, problem: Option<&str>, headers: &HeaderMap) {
        let may_recover = !self.0.cached && self.0.failed.load(Relaxed) > 0;
        match problem {
            Some("store-unavailable") => self.0.failed.store(self.now(), Relaxed),
            // What was read back is proof; what is only accepted is not.
            None if may_recover && headers.contains_key(IDEMPOTENT_REPLAYED) => {
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

    fn answered(health: &StoreHealth, problem: Option<&str>, replayed: bool) -> bool {
        let mark = (IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        health.answered(problem, &HeaderMap::from_iter(replayed.then_some(mark)));
        health.is_well()
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
        assert!(health.is_well());
        assert!(!answered(Some("store-unavailable"), false));
        assert!(!answered(Some("principal-missing"), false), "that one asked no store");
        assert!(!answered(None, false), "that one may not have needed it");
        assert!(answered(None, true));
    }
}
