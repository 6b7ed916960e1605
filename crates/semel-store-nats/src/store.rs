//! `impl Store`: a request runs on the caller's runtime, maintenance on the background runtime.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use semel_core::{
    ChangeFeed, Durability, HashSecret, KeyHash, ListQuery, Policy, Purged, Record, Result, Stats,
    StoreInfo,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::{run_in_background, run_to_completion};
use tokio::{task::AbortHandle, time::interval};

use crate::{
    NatsStoreBuilder,
    bucket::OpenedBucket,
    bucket_client::BucketClient,
    change_feed::NatsSubscription,
    list,
    maintenance::{self, LeaderElection},
    purge, request,
    settings::NatsSettings,
    sightings::Sightings,
};

const CANCELLED: &str = "nats: a call was cancelled";
/// How often the stream's state is read, which has the leader's time.
const INFO_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes of a message that are reserved for labels, headers and the head of the record.
const MESSAGE_OVERHEAD: usize = 128 * 1024;

/// Keeps records in a NATS KV bucket, for all processes that connect there. Clones share connections.
///
/// ```no_run
/// # async fn connect() -> semel_core::Result<()> {
/// use semel_store_nats::NatsStore;
/// let store = NatsStore::connect("nats://localhost:4222/ids").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct NatsStore(Arc<NatsStoreInner>);

pub(crate) struct NatsStoreInner {
    pub(crate) bucket: Arc<BucketClient>,
    sightings: Sightings,
    election: LeaderElection,
    feed: ChangeFeed,
    secret: Option<HashSecret>,
    max_outcome: usize,
    tasks: [AbortHandle; 2],
}

impl NatsStore {
    /// Connects with the default settings.
    ///
    /// # Errors
    ///
    /// As [`NatsStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings for the store at this URL: `nats://HOST:PORT,…/BUCKET` or `nats+tls://`.
    pub fn builder(url: &str) -> NatsStoreBuilder {
        NatsStoreBuilder::new(url)
    }

    /// Opens the store. Runs on the background runtime.
    pub(crate) async fn open(
        settings: Arc<NatsSettings>,
        secret: Option<HashSecret>,
    ) -> Result<Self> {
        let OpenedBucket { bucket, max_message } = settings.open().await?;
        let (bucket, feed) = (Arc::new(bucket), ChangeFeed::new());
        // Subscribes once, to fail now if the user has no right to do so. The server soon removes the consumer.
        drop(NatsSubscription::subscribe(&bucket).await?);
        let feed_task =
            tokio::spawn(NatsSubscription::notify(bucket.clone(), feed.clone())).abort_handle();
        let clock_task = tokio::spawn(keep_clock_set(bucket.clone())).abort_handle();
        let max_outcome =
            max_message.saturating_sub(MESSAGE_OVERHEAD).min(Policy::MAX_OUTCOME_LIMIT);
        Ok(Self(Arc::new(NatsStoreInner {
            bucket,
            sightings: Sightings::new(),
            election: LeaderElection::new(),
            feed,
            secret,
            max_outcome,
            tasks: [feed_task, clock_task],
        })))
    }

    fn call(&self, mut request: StoreRequest) -> impl Future<Output = Result<StoreReply>> + use<> {
        request.bound();
        let inner = self.0.clone();
        run_to_completion(async move { inner.call(&request).await }, CANCELLED).map(Result::flatten)
    }

    async fn call_all(&self, mut requests: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        requests.iter_mut().for_each(StoreRequest::bound);
        let (inner, count) = (self.0.clone(), requests.len());
        let replies =
            run_to_completion(async move { inner.call_all(requests).await }, CANCELLED).await;
        replies.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }

    /// Runs a maintenance task to its end, even if the caller is dropped.
    async fn run_maintenance<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        task: impl FnOnce(Arc<NatsStoreInner>) -> F,
    ) -> Result<T> {
        run_in_background(task(self.0.clone()), CANCELLED).await?
    }
}

/// Keeps the clock close to the leader's, and the capacity up to date.
async fn keep_clock_set(bucket: Arc<BucketClient>) {
    let mut ticks = interval(INFO_INTERVAL);
    loop {
        ticks.tick().await;
        if let Err(error) = bucket.info().await {
            tracing::debug!(error = %error.into_error(), "nats: cannot read the leader's time");
        }
    }
}

impl NatsStoreInner {
    pub(crate) fn call(&self, request: &StoreRequest) -> impl Future<Output = Result<StoreReply>> {
        request::execute(&self.bucket, &self.sightings, request)
    }

    /// Executes requests concurrently; requests of one key in their order.
    pub(crate) async fn call_all(&self, requests: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        let mut by_key: HashMap<KeyHash, Vec<usize>> = HashMap::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            by_key.entry(*request.key()).or_default().push(at);
        }
        let requests = &requests;
        let in_order = by_key.into_values().map(|indexes| async move {
            let mut replies = Vec::with_capacity(indexes.len());
            for at in indexes {
                replies.push((at, self.call(&requests[at]).await));
            }
            replies
        });
        let mut replies: Vec<_> = join_all(in_order).await.into_iter().flatten().collect();
        replies.sort_unstable_by_key(|(at, _)| *at);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }
}

impl Drop for NatsStoreInner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NatsStoreInner { bucket, .. } = &*self.0;
        f.debug_struct("NatsStore").field("names", &bucket.names).finish_non_exhaustive()
    }
}

semel_remote::impl_store_by_requests! {
    impl Store for NatsStore {
        fn info(&self) -> StoreInfo {
            StoreInfo {
                name: "nats",
                durability: Durability::Durable,
                max_outcome_bytes: self.0.max_outcome,
                hash_secret: self.0.secret.clone(),
                change_feed: Some(self.0.feed.clone()),
                shared: true,
                identity: None,
            }
        }

        /// The server itself deletes expired records. This puts keys whose owner is lost on hold.
        async fn purge(&self, limit: usize) -> Result<Purged> {
            self.run_maintenance(move |inner| async move { purge::purge(&inner, limit).await }).await
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            self.run_maintenance(move |inner| async move { inner.election.lead(&inner.bucket, term).await })
                .await
        }

        /// Lists all keys of the store, and reads from the leader: for operators, not for programs.
        async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
            let query = query.clone();
            self.run_maintenance(move |inner| async move { list::list(&inner, &query).await }).await
        }

        /// Lists all keys of the store.
        async fn stats(&self) -> Result<Stats> {
            self.run_maintenance(|inner| async move { maintenance::stats(&inner).await }).await
        }
    }
}
