//! `impl Store`: hands each step to a worker, and each chore to its own connection.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{
    Durability, ErrorKind, HashSecret, Hints, ListQuery, Policy, Purged, Record, Result, Stats,
    StoreInfo,
    remote::{self, on_background},
    steps::{Call, Said},
};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{
    RedisStoreBuilder,
    agree::keep_agreed,
    chores::Chores,
    cleanup,
    error::for_who_begins,
    lane::{Lane, LanePlan},
    list,
    news::News,
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
    lanes: remote::Lanes<Lane>,
    pub(crate) chores: Arc<Chores>,
    pub(crate) rest: list::Rest,
    hints: Hints,
    tasks: [AbortHandle; 2],
    secret: Option<HashSecret>,
}

/// What runs on semel's own runtime.
struct Own {
    lane: Lane,
    chores: Chores,
    news: Option<News>,
}

impl Own {
    async fn open(lanes: &LanePlan) -> Result<Self> {
        Ok(Self {
            lane: lanes.open(lanes.connections.div_ceil(2)).await?,
            chores: Chores::open(lanes.plan.clone()).await?,
            news: Some(News::subscribe(&lanes.plan).await?),
        })
    }

    /// The same, connected by itself once there is a server.
    fn begin(lanes: &LanePlan) -> Self {
        Self {
            lane: lanes.begin(&Handle::current(), lanes.connections.div_ceil(2)),
            chores: Chores::begin(lanes.plan.clone()),
            news: None,
        }
    }
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
        lanes: LanePlan,
        secret: Option<HashSecret>,
        connect_later: bool,
    ) -> Result<Self> {
        let Own { lane, chores, news } = match Own::open(&lanes).await.map_err(for_who_begins) {
            Err(error) if connect_later && error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "redis: not connected; it is used once it is there");
                Own::begin(&lanes)
            }
            own => own?,
        };
        let (plan, hints, chores) = (lanes.plan.clone(), Hints::new(), Arc::new(chores));
        let lanes =
            remote::Lanes::new(lane, move |runtime| lanes.begin(runtime, lanes.connections));
        let news = tokio::spawn(News::pass_on(news, plan, hints.clone())).abort_handle();
        let agreeing = tokio::spawn(keep_agreed(chores.clone())).abort_handle();
        let (rest, tasks) = (list::Rest::default(), [news, agreeing]);
        Ok(Self(Arc::new(Inner { lanes, chores, rest, hints, tasks, secret })))
    }

    /// Runs a chore to its end, whether or not the caller still waits.
    async fn chore<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        chore: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<T> {
        on_background(chore(self.0.clone()), "redis: a chore did not come to its end").await?
    }

    fn call(&self, mut call: Call) -> impl Future<Output = Result<Said>> + use<> {
        call.bound();
        self.0.lanes.lane().call(call, 0)
    }

    async fn call_all(&self, mut calls: Vec<Call>) -> Vec<Result<Said>> {
        calls.iter_mut().for_each(Call::bound);
        self.0.call_all(calls).await
    }
}

impl Inner {
    pub(crate) async fn call_all(&self, calls: Vec<Call>) -> Vec<Result<Said>> {
        self.lanes.lane().call_all(calls).await
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("lanes", &self.0.lanes).finish_non_exhaustive()
    }
}

semel_core::__store_by_calls! {
    impl Store for RedisStore {
        fn info(&self) -> StoreInfo {
            StoreInfo {
                name: "redis",
                durability: Durability::Durable,
                max_outcome_bytes: Policy::MAX_OUTCOME_LIMIT,
                hash_secret: self.0.secret.clone(),
                hints: Some(self.0.hints.clone()),
                shared: true,
                identity: None,
            }
        }

        /// Redis deletes what has expired by itself; lost owners are put on hold.
        async fn purge(&self, limit: usize) -> Result<Purged> {
            self.chore(move |inner| async move { cleanup::purge(&inner, limit).await }).await
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            self.chore(move |inner| async move { inner.chores.lead(term).await }).await
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
}
