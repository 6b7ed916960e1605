//! The engine: claims a key, runs the work once and records its outcome, or replays the recorded outcome.
//!
//! ```text
//! run, run_raw ─┬─ singleflight ─ follower: waits for the leader's result
//! run_many ─────┘        │
//!                      leader
//!                        │
//!                      claim ──┬─ Granted ─ attempt: runs the work ─ settle: records, releases or abandons
//!                              │                │
//!                              │             renewal: extends the lease from the background runtime
//!                              ├─ Replay ── the recorded outcome
//!                              ├─ Busy ──── wait_for_owner: reads the record until the other process has finished
//!                              └─ other ─── an error
//! ```
//!
//! Invariants:
//!
//! - **One leader for each key and fingerprint** in this process (`singleflight`). A mismatch is always the store's
//!   reply.
//! - **The in-flight entry is removed before followers get the result**, so a later caller claims the key itself.
//! - **The in-flight entry is removed when the lease is lost** (`lease_lost`), by the renewal task, since the work may
//!   hang or block its thread. Each call removes only its own entry.
//! - **Granted work does not end with its caller.** It is polled once in the caller's task; if it has to wait, it
//!   continues in a task of its own. A shutdown waits for both.
//! - **A granted key is always given back** (`release_on_drop`): if its task is dropped, the key is released when no
//!   work started, and abandoned when some did.
//! - **Store calls are never cancelled** ([`crate::background`]). A grant that comes after its timeout is released.
//! - **The engine's timers decide when to call the store, never whether a lease is valid.** Only the store's clock
//!   does.
//!
//! What a caller sees is in the documentation of [`Engine`].

mod answer;
mod attempt;
mod builder;
mod claim;
mod cleanup;
mod context;
mod lease_lost;
mod operator;
mod recorded_request;
mod release_on_drop;
mod renewal;
mod run;
mod run_many;
#[cfg(all(test, shuttle))]
mod schedules;
mod settle;
mod singleflight;
mod stuck_keys;
mod trial;
mod wait_for_owner;

use std::{fmt, sync::Arc, time::Duration};

pub use answer::{Answer, Failed, RawAnswer, Retry, RunError, Unreadable};
pub use builder::{EngineBuilder, LabelPolicy};
pub use context::{Context, DownstreamKey};
pub use recorded_request::{DetailedFingerprint, RecordedDigests, RecordedRequest};
pub use trial::Trial;

use self::{renewal::Renewals, singleflight::InFlightCalls, stuck_keys::StuckKeys};
use crate::{
    ClaimRequest, Classifier, HashSecret, Key, KeyHash, KeySource, KeyStrategy, Nonce, Policy,
    Result, Scope, Store, StoreInfo,
    layers::circuit_breaker::CircuitBreaker,
    sync::{
        Instant, TaskTracker,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        time::timeout,
    },
};

/// Runs work so that it takes effect once per key. Clones share everything.
///
/// Must be used inside a tokio runtime with its timer on, as `#[tokio::main]` has it.
#[doc = include_str!("../docs/engine.md")]
#[derive(Clone)]
pub struct Engine {
    inner: Arc<EngineInner>,
    policy: Arc<Policy>,
}

struct EngineInner {
    store: Arc<dyn Store>,
    info: StoreInfo,
    secret: Option<HashSecret>,
    classifier: Arc<dyn Classifier>,
    strategy: KeyStrategy,
    labels: LabelPolicy,
    in_flight: Arc<InFlightCalls>,
    renewals: Renewals,
    tasks: TaskTracker,
    closed: AtomicBool,
    /// Unacknowledged claims that are being looked up.
    claim_lookups: Arc<AtomicUsize>,
    stuck: Arc<StuckKeys>,
    /// Open while the store is known to be down. `None` for a store in this process.
    circuit: Option<Arc<CircuitBreaker>>,
}

impl Engine {
    /// Sets up an engine. Every setting has a default.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// The same engine with another policy, for another kind of operation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a field of the policy is out of bounds.
    pub fn with_policy(&self, policy: Policy) -> Result<Self> {
        policy.check()?;
        Ok(Self { inner: self.inner.clone(), policy: Arc::new(policy) })
    }

    /// The key of a message, by the engine's [`KeyStrategy`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the message lacks what the strategy
    /// needs, or the id breaks the rules of [`Scope::key`].
    pub fn key(&self, scope: &Scope, source: &KeySource<'_>) -> Result<Key> {
        scope.key(self.inner.strategy.render(source)?)
    }

    /// The hash by which the store identifies this key.
    #[must_use]
    pub fn key_hash(&self, key: &Key) -> KeyHash {
        key.hash(self.inner.secret.as_ref())
    }

    /// The context of work that runs without protection, such as on a route whose mode is `off`: token and attempt are
    /// 0. The downstream key is the one that the key would have with protection; without a key it is a random one.
    #[must_use]
    pub fn unprotected(&self, key: Option<&Key>) -> Context {
        let random = || KeyHash::from_bytes(rand::random());
        let key = key.map_or_else(random, |key| self.key_hash(key));
        Context::unprotected(key, Instant::now() + self.policy.max_run)
    }

    /// The store behind the engine.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    /// Refuses new work, then waits up to `deadline` for the work that runs. Returns how many tasks were left; their
    /// leases end by themselves and are never released early.
    pub async fn shutdown(&self, deadline: Duration) -> usize {
        self.inner.closed.store(true, SeqCst);
        self.inner.tasks.close();
        let _ = timeout(deadline, self.inner.tasks.wait()).await;
        self.inner.tasks.len()
    }

    fn claim_request(&self, key: &Key, detailed: &DetailedFingerprint) -> ClaimRequest {
        let secret = self.inner.secret.as_ref();
        let fingerprint = detailed.fingerprint.sealed(secret);
        let labels = || match &detailed.parts {
            Some(parts) => key.labels(secret).with_parts(&fingerprint, parts),
            None => key.labels(secret),
        };
        let labels = match self.inner.labels {
            LabelPolicy::Keep => Some(labels()),
            LabelPolicy::Redact => None,
        };
        ClaimRequest {
            key: key.hash(secret),
            fingerprint,
            nonce: Nonce::random(),
            terms: self.policy.terms(),
            labels,
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.inner.info.name)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EngineInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineInner").field("store", &self.info.name).finish_non_exhaustive()
    }
}

impl Drop for EngineInner {
    fn drop(&mut self) {
        self.renewals.stop();
    }
}
