//! `impl Store`: hands each step to a worker, and each chore to its own connection.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{
    ChangeFeed, Durability, ErrorKind, HashSecret, ListQuery, Policy, Purged, Record, Result,
    Stats, StoreInfo,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::run_in_background;
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{
    RedisStoreBuilder,
    change_feed::News,
    error::for_who_begins,
    list,
    maintenance::{self, Chores},
    meta::keep_agreed,
    purge,
    runtime_connections::{Lane, LanePlan},
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
    lanes: semel_remote::RuntimeConnections<Lane>,
    pub(crate) chores: Arc<Chores>,
    pub(crate) rest: list::Rest,
    feed: ChangeFeed,
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
        let (plan, feed, chores) = (lanes.plan.clone(), ChangeFeed::new(), Arc::new(chores));
        let lanes = semel_remote::RuntimeConnections::new(lane, move |runtime| {
            lanes.begin(runtime, lanes.connections)
        });
        let news = tokio::spawn(News::pass_on(news, plan, feed.clone())).abort_handle();
        let agreeing = tokio::spawn(keep_agreed(chores.clone())).abort_handle();
        let (rest, tasks) = (list::Rest::default(), [news, agreeing]);
        Ok(Self(Arc::new(Inner { lanes, chores, rest, feed, tasks, secret })))
    }

    /// Runs a chore to its end, whether or not the caller still waits.
    async fn chore<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        chore: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<T> {
        run_in_background(chore(self.0.clone()), "redis: a chore did not come to its end").await?
    }

    fn call(&self, mut call: StoreRequest) -> impl Future<Output = Result<StoreReply>> + use<> {
        call.bound();
        self.0.lanes.current().call(call, 0)
    }

    async fn call_all(&self, mut calls: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        calls.iter_mut().for_each(StoreRequest::bound);
        self.0.call_all(calls).await
    }
}

impl Inner {
    pub(crate) async fn call_all(&self, calls: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        self.lanes.current().call_all(calls).await
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

semel_remote::impl_store_by_requests! {
    impl Store for RedisStore {
        fn info(&self) -> StoreInfo {
            StoreInfo {
                name: "redis",
                durability: Durability::Durable,
                max_outcome_bytes: Policy::MAX_OUTCOME_LIMIT,
                hash_secret: self.0.secret.clone(),
                change_feed: Some(self.0.feed.clone()),
                shared: true,
                identity: None,
            }
        }

        /// Redis deletes what has expired by itself; lost owners are put on hold.
        async fn purge(&self, limit: usize) -> Result<Purged> {
            self.chore(move |inner| async move { purge::purge(&inner, limit).await }).await
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
            self.chore(|inner| async move { maintenance::stats(&inner).await }).await
        }
    }
}
