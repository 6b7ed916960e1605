//! Sets up an engine.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Engine, EngineInner, cleanup,
    renewal::Renewals,
    singleflight::{FollowerLimits, InFlightCalls},
};
use crate::{
    Classifier, DefaultClassifier, Error, HashSecret, KeyStrategy, MemoryStore, Observed, Policy,
    Result, Store, StoreInfo,
    layers::circuit_breaker::CircuitBreaker,
    sync::{TaskTracker, atomic::AtomicBool},
};

/// Whether records keep the readable parts of their key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelPolicy {
    /// Operators can see which key a record belongs to.
    #[default]
    Keep,
    /// Records hold the key's hash only.
    Redact,
}

/// Builds an [`Engine`].
#[must_use]
pub struct EngineBuilder {
    store: Option<Arc<dyn Store>>,
    policy: Policy,
    secret: Option<HashSecret>,
    classifier: Arc<dyn Classifier>,
    strategy: KeyStrategy,
    labels: LabelPolicy,
    limits: FollowerLimits,
    cleanup_every: Duration,
}

impl EngineBuilder {
    /// Callers that may wait for one key.
    pub const WAITERS_PER_KEY: usize = 4096;
    /// Callers that may wait for all keys together.
    pub const WAITERS: usize = 65_536;
    /// Time between two cleanups.
    pub const CLEANUP_EVERY: Duration = Duration::from_secs(60);
    /// The longest time between two cleanups.
    pub const MAX_CLEANUP_EVERY: Duration = Duration::from_secs(24 * 3600);

    pub(super) fn new() -> Self {
        Self {
            store: None,
            policy: Policy::default(),
            secret: None,
            classifier: Arc::new(DefaultClassifier),
            strategy: KeyStrategy::default(),
            labels: LabelPolicy::default(),
            limits: FollowerLimits { per_key: Self::WAITERS_PER_KEY, in_all: Self::WAITERS },
            cleanup_every: Self::CLEANUP_EVERY,
        }
    }

    /// The store that keeps the records. Default: memory, with a warning.
    pub fn store(self, store: impl Store) -> Self {
        Self { store: Some(Arc::new(Observed::new(store))), ..self }
    }

    /// The policy of operations that do not set their own. Default: [`Policy::api`].
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The secret that keys all hashes. Default: the store's own secret if it keeps one, else none.
    pub fn hash_secret(self, secret: HashSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Decides what the errors of the work mean. Default: [`DefaultClassifier`].
    pub fn classifier(self, classifier: impl Classifier) -> Self {
        Self { classifier: Arc::new(classifier), ..self }
    }

    /// How [`Engine::key`] makes keys. Default: [`KeyStrategy::message_id`].
    pub fn key_strategy(self, strategy: KeyStrategy) -> Self {
        Self { strategy, ..self }
    }

    /// Whether records keep the readable parts of their key.
    pub fn labels(self, labels: LabelPolicy) -> Self {
        Self { labels, ..self }
    }

    /// How many callers may wait for one key; further callers get [`RunError::Busy`](crate::RunError::Busy).
    pub fn waiters_per_key(mut self, waiters: usize) -> Self {
        self.limits.per_key = waiters;
        self
    }

    /// How many callers may wait for all keys together.
    pub fn waiters(mut self, waiters: usize) -> Self {
        self.limits.in_all = waiters;
        self
    }

    /// Time between two cleanups: expired records are purged and the gauges set.
    pub fn cleanup_every(self, cleanup_every: Duration) -> Self {
        Self { cleanup_every, ..self }
    }

    /// Makes the engine, or names the setting that is out of bounds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the setting and what it may be.
    pub fn build(self) -> Result<Engine> {
        self.policy.check()?;
        check_cleanup(self.cleanup_every)?;
        let store = self.store.unwrap_or_else(default_store);
        let info = store.info();
        check_secret(&info, self.secret.as_ref())?;
        let circuit = info.shared.then(|| CircuitBreaker::for_store(store.clone()));
        let inner = Arc::new(EngineInner {
            secret: self.secret.or_else(|| info.hash_secret.clone()),
            store,
            info,
            classifier: self.classifier,
            strategy: self.strategy,
            labels: self.labels,
            in_flight: InFlightCalls::new(self.limits),
            renewals: Renewals::default(),
            tasks: TaskTracker::new(),
            closed: AtomicBool::new(false),
            claim_lookups: Arc::default(),
            stuck: Arc::default(),
            circuit,
        });
        Renewals::start(&inner);
        cleanup::start(&inner, self.cleanup_every);
        Ok(Engine { inner, policy: Arc::new(self.policy) })
    }
}

fn check_cleanup(every: Duration) -> Result<()> {
    let (least, most) = (Duration::from_millis(1), EngineBuilder::MAX_CLEANUP_EVERY);
    if (least..=most).contains(&every) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "engine: cleanup_every is {every:?}; it must be from {least:?} to {most:?}"
    )))
}

/// A shared store compares its secret with that of the other processes, so it must be given to the store.
fn check_secret(info: &StoreInfo, given: Option<&HashSecret>) -> Result<()> {
    if info.shared && given.is_some() && given != info.hash_secret.as_ref() {
        return Err(Error::invalid(format!(
            "engine: hash_secret is not the one the {} store was opened with; give it to the store, \
             which compares it with that of the other processes",
            info.name
        )));
    }
    Ok(())
}

fn default_store() -> Arc<dyn Store> {
    tracing::warn!(
        "no store is set: records are kept in memory and forgotten when this process ends"
    );
    Arc::new(Observed::new(MemoryStore::new()))
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("store", &self.store)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
