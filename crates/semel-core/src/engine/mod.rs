//! The engine: claim, run, record, or replay.

mod admin;
mod answer;
mod attempt;
mod builder;
mod cleanup;
mod context;
mod lease_lost;
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

use self::{renewal::Renewals, singleflight::Flights, stuck_keys::StuckKeys};
use crate::{
    ClaimRequest, Classifier, HashSecret, Key, KeyHash, KeySource, KeyStrategy, Nonce, Policy,
    Result, Scope, Store, StoreInfo,
    circuit_breaker::Circuit,
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
    inner: Arc<Inner>,
    policy: Arc<Policy>,
}

struct Inner {
    store: Arc<dyn Store>,
    info: StoreInfo,
    secret: Option<HashSecret>,
    classifier: Arc<dyn Classifier>,
    strategy: KeyStrategy,
    labels: LabelPolicy,
    flights: Arc<Flights>,
    renewals: Renewals,
    tasks: TaskTracker,
    closed: AtomicBool,
    disowning: Arc<AtomicUsize>,
    stuck: Arc<StuckKeys>,
    /// Open while the store is known to be down. None for a store in this process.
    circuit: Option<Arc<Circuit>>,
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

    /// What the store knows this key by.
    #[must_use]
    pub fn key_hash(&self, key: &Key) -> KeyHash {
        key.hash(self.inner.secret.as_ref())
    }

    /// The context of work that runs without protection, such as behind a door that is switched off:
    /// token and attempt are 0. The downstream key is the one it would have; without a key it is one
    /// that nobody has had.
    #[must_use]
    pub fn unprotected(&self, key: Option<&Key>) -> Context {
        let nobodys = || KeyHash::from_bytes(rand::random());
        let key = key.map_or_else(nobodys, |key| self.key_hash(key));
        Context::unprotected(key, Instant::now() + self.policy.max_run)
    }

    /// The store behind the engine.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    /// Takes no new work, then waits up to `deadline` for the work that runs. Answers how many tasks
    /// were left; their leases run out by themselves and are never released early.
    pub async fn shutdown(&self, deadline: Duration) -> usize {
        self.inner.closed.store(true, SeqCst);
        self.inner.tasks.close();
        let _ = timeout(deadline, self.inner.tasks.wait()).await;
        self.inner.tasks.len()
    }

    fn claim_request(&self, key: &Key, asked: &DetailedFingerprint) -> ClaimRequest {
        let secret = self.inner.secret.as_ref();
        let fingerprint = asked.fingerprint.sealed(secret);
        let labels = || match &asked.parts {
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

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("store", &self.info.name).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.renewals.stop();
    }
}
