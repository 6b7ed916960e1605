//! `impl Store`: hands each step to a worker, and each chore to its own connection.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use semel_core::{
    AbandonRequest, Abandonment, Claim, ClaimRequest, CompleteRequest, Completion, Durability,
    Erasure, ErrorKind, Forgetting, HashSecret, Hints, KeyHash, ListQuery, Policy, Purged, Record,
    Release, ReleaseRequest, RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting,
    Stats, Store, StoreInfo, background,
    batch::{BatchLimits, Batcher},
    steps::{Call, Said},
};
use tokio::task::AbortHandle;

use crate::{
    RedisStoreBuilder,
    chores::Chores,
    cleanup,
    link::Plan,
    list,
    news::News,
    value::{bounded, bounded_span},
    worker::Worker,
};

/// Keeps records in Redis or Valkey, for all processes that connect there. Clones share connections.
///
/// ```no_run
/// # async fn connect() -> semel_core::Result<()> {
/// use semel_store_redis::RedisStore;
/// let store = RedisStore::connect("redis://localhost:6379").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

pub(crate) struct Inner {
    calls: Batcher<Call, Result<Said>>,
    pub(crate) chores: Chores,
    hints: Hints,
    news: AbortHandle,
    secret: Option<HashSecret>,
}

impl RedisStore {
    /// Connects with the default settings.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings for the store at this URL: `redis://`, `rediss://`, `redis+cluster://` or
    /// `redis+sentinel://`.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Runs on semel's own runtime.
    pub(crate) async fn open(
        plan: Arc<Plan>,
        connections: usize,
        limits: BatchLimits,
        secret: Option<HashSecret>,
    ) -> Result<Self> {
        let (calls, batches) = Batcher::new(limits);
        for _ in 0..connections {
            let worker = Worker::open(plan.clone()).await?;
            tokio::spawn(worker.run(batches.clone()));
        }
        let chores = Chores::open(plan.clone()).await?;
        let (hints, news) = (Hints::new(), News::subscribe(&plan).await?);
        let news = tokio::spawn(news.pass_on(plan, hints.clone())).abort_handle();
        Ok(Self(Arc::new(Inner { calls, chores, hints, news, secret })))
    }

    /// Runs a chore to its end, whether or not the caller still waits.
    async fn chore<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        chore: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<T> {
        let done = background().spawn(chore(self.0.clone())).await;
        done.map_err(|error| {
            crate::error::unavailable("redis: a chore did not come to its end").with_source(error)
        })?
    }
}

impl Inner {
    pub(crate) async fn call(&self, call: Call) -> Result<Said> {
        self.calls.call(call).await?
    }

    pub(crate) async fn call_all(&self, calls: Vec<Call>) -> Vec<Result<Said>> {
        let count = calls.len();
        let answers = self.calls.call_all(calls).await;
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }

    /// A record, unless it cannot be read: then it is logged, so that it does not hide the others.
    pub(crate) fn listed(answer: Result<Said>) -> Result<Option<Record>> {
        match answer {
            Ok(Said::Get(sighting)) => Ok(sighting.map(|sighting| sighting.record)),
            Ok(other) => unreachable!("a worker said {other:?} to a get"),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::error!(%error, "redis: left out of a list");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.news.abort();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("calls", &self.0.calls).finish_non_exhaustive()
    }
}

fn within_bounds(request: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { terms: bounded(request.terms), ..request.clone() }
}

/// Unwraps what a worker said to a call of the same kind.
macro_rules! said {
    ($answer:expr, $kind:ident) => {
        $answer.map(|said| match said {
            Said::$kind(answer) => answer,
            other => unreachable!("a worker said {other:?} to another kind of call"),
        })
    };
}

macro_rules! ask {
    ($self:ident, $kind:ident($request:expr)) => {
        said!($self.0.call(Call::$kind($request)).await, $kind)
    };
}

macro_rules! ask_all {
    ($self:ident, $kind:ident($requests:expr)) => {
        $self
            .0
            .call_all($requests.map(Call::$kind).collect())
            .await
            .into_iter()
            .map(|said| said!(said, $kind))
            .collect()
    };
}

#[async_trait]
impl Store for RedisStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            name: "redis",
            durability: Durability::Durable,
            max_outcome_bytes: Policy::MAX_OUTCOME_LIMIT,
            hash_secret: self.0.secret.clone(),
            hints: Some(self.0.hints.clone()),
            shared: true,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        ask!(self, Claim(within_bounds(request)))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal> {
        ask!(self, Renew(*request))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<Completion> {
        ask!(self, Complete(request.clone()))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<Release> {
        ask!(self, Release(*request))
    }

    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment> {
        let backoff = bounded_span(request.backoff).to_duration();
        ask!(self, Abandon(AbandonRequest { backoff, ..*request }))
    }

    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>> {
        ask_all!(self, Claim(requests.iter().map(within_bounds)))
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>> {
        ask_all!(self, Renew(requests.iter().copied()))
    }

    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>> {
        ask_all!(self, Complete(requests.iter().cloned()))
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>> {
        ask_all!(self, Release(requests.iter().copied()))
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        ask!(self, Resolve(request.clone()))
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        ask!(self, Erase(*key))
    }

    /// Redis deletes what has expired by itself; lost owners are put on hold.
    async fn purge(&self, limit: usize) -> Result<Purged> {
        self.chore(move |inner| async move { cleanup::purge(&inner, limit).await }).await
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        ask!(self, Forget(*key))
    }

    async fn lead(&self, term: Duration) -> Result<bool> {
        self.chore(move |inner| async move { inner.chores.lead(term).await }).await
    }

    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>> {
        ask!(self, Get(*key))
    }

    /// Walks through all keys of the servers: for operators, not for programs.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
        let query = query.clone();
        self.chore(move |inner| async move { list::list(&inner, &query).await }).await
    }

    /// `records` counts all keys of the servers' database, those of others included.
    async fn stats(&self) -> Result<Stats> {
        self.chore(|inner| async move { cleanup::stats(&inner).await }).await
    }
}
