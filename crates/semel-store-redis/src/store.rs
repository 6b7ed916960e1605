//! `impl Store`: requests go to the workers of the caller's runtime, maintenance to a connection of its own.

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
    change_feed::RedisSubscription,
    error::permanent_at_startup,
    list,
    maintenance::{self, RedisMaintenance},
    meta::keep_meta_checked,
    purge,
    runtime_connections::{RedisQueueSettings, RedisRequestQueue},
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
pub struct RedisStore(Arc<RedisStoreInner>);

pub(crate) struct RedisStoreInner {
    connections: semel_remote::RuntimeConnections<RedisRequestQueue>,
    pub(crate) maintenance: Arc<RedisMaintenance>,
    pub(crate) previous_scan: list::PreviousScan,
    feed: ChangeFeed,
    tasks: [AbortHandle; 2],
    secret: Option<HashSecret>,
}

/// The connections on the background runtime.
struct BackgroundConnections {
    queue: RedisRequestQueue,
    maintenance: RedisMaintenance,
    subscription: Option<RedisSubscription>,
}

impl BackgroundConnections {
    async fn open(queues: &RedisQueueSettings) -> Result<Self> {
        Ok(Self {
            queue: queues.open(queues.connections.div_ceil(2)).await?,
            maintenance: RedisMaintenance::open(queues.settings.clone()).await?,
            subscription: Some(RedisSubscription::subscribe(&queues.settings).await?),
        })
    }

    /// The same, opened in the background once the server can be reached.
    fn open_in_background(queues: &RedisQueueSettings) -> Self {
        Self {
            queue: queues.open_in_background(&Handle::current(), queues.connections.div_ceil(2)),
            maintenance: RedisMaintenance::open_in_background(queues.settings.clone()),
            subscription: None,
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

    /// Opens the store. Runs on the background runtime.
    pub(crate) async fn open(
        queues: RedisQueueSettings,
        secret: Option<HashSecret>,
        connect_later: bool,
    ) -> Result<Self> {
        let BackgroundConnections { queue, maintenance, subscription } =
            match BackgroundConnections::open(&queues).await.map_err(permanent_at_startup) {
                Err(error) if connect_later && error.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(%error, "redis: the server cannot be reached; semel connects to it later");
                    BackgroundConnections::open_in_background(&queues)
                }
                connections => connections?,
            };
        let (settings, feed, maintenance) =
            (queues.settings.clone(), ChangeFeed::new(), Arc::new(maintenance));
        let connections = semel_remote::RuntimeConnections::new(queue, move |runtime| {
            queues.open_in_background(runtime, queues.connections)
        });
        let feed_task =
            tokio::spawn(RedisSubscription::notify(subscription, settings, feed.clone()))
                .abort_handle();
        let meta_check = tokio::spawn(keep_meta_checked(maintenance.clone())).abort_handle();
        let (previous_scan, tasks) = (list::PreviousScan::default(), [feed_task, meta_check]);
        Ok(Self(Arc::new(RedisStoreInner {
            connections,
            maintenance,
            previous_scan,
            feed,
            tasks,
            secret,
        })))
    }

    /// Runs a maintenance task to its end, even if the caller is dropped.
    async fn run_maintenance<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        task: impl FnOnce(Arc<RedisStoreInner>) -> F,
    ) -> Result<T> {
        run_in_background(task(self.0.clone()), "redis: a maintenance task was cancelled").await?
    }

    fn call(&self, mut request: StoreRequest) -> impl Future<Output = Result<StoreReply>> + use<> {
        request.bound();
        self.0.connections.current().call(request, 0)
    }

    async fn call_all(&self, mut requests: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        requests.iter_mut().for_each(StoreRequest::bound);
        self.0.call_all(requests).await
    }
}

impl RedisStoreInner {
    pub(crate) async fn call_all(&self, requests: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        self.connections.current().call_all(requests).await
    }
}

impl Drop for RedisStoreInner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("connections", &self.0.connections)
            .finish_non_exhaustive()
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

        /// Redis itself deletes expired records. This puts keys whose owner is lost on hold.
        async fn purge(&self, limit: usize) -> Result<Purged> {
            self.run_maintenance(move |inner| async move { purge::purge(&inner, limit).await }).await
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            self.run_maintenance(move |inner| async move { inner.maintenance.lead(term).await }).await
        }

        /// Scans all keys of the servers: for operators, not for programs.
        async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
            let query = query.clone();
            self.run_maintenance(move |inner| async move { list::list(&inner, &query).await }).await
        }

        /// `records` counts all keys of the servers' database, including those of other applications.
        async fn stats(&self) -> Result<Stats> {
            self.run_maintenance(|inner| async move { maintenance::stats(&inner).await }).await
        }
    }
}
