//! `impl Store`: whoever makes a call takes its steps; chores are tasks of semel's own runtime.

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
    bucket::Opened,
    bucket_client::Link,
    change_feed::News,
    list,
    maintenance::{self, Candidate},
    purge, request,
    settings::Plan,
    sightings::Known,
};

const CUT_OFF: &str = "nats: a call did not come to its end";
/// The leader's clock is asked this often.
const ASK_TIME: Duration = Duration::from_secs(2);
/// What a message may hold besides an outcome: labels, headers, the record's head.
const BESIDES: usize = 128 * 1024;

/// Keeps records in a NATS KV bucket, for all processes that connect there. Clones share connections.
///
/// ```no_run
/// # async fn connect() -> semel_core::Result<()> {
/// use semel_store_nats::NatsStore;
/// let store = NatsStore::connect("nats://localhost:4222/ids").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct NatsStore(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    known: Known,
    candidate: Candidate,
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

    /// Runs on semel's own runtime.
    pub(crate) async fn open(plan: Arc<Plan>, secret: Option<HashSecret>) -> Result<Self> {
        let Opened { link, max_message } = plan.open().await?;
        let (link, feed) = (Arc::new(link), ChangeFeed::new());
        // Only to be told at once if it is not allowed; the server forgets it before long.
        drop(News::subscribe(&link).await?);
        let news = tokio::spawn(News::pass_on(link.clone(), feed.clone())).abort_handle();
        let clock = tokio::spawn(tell_time(link.clone())).abort_handle();
        let max_outcome = max_message.saturating_sub(BESIDES).min(Policy::MAX_OUTCOME_LIMIT);
        Ok(Self(Arc::new(Inner {
            link,
            known: Known::new(),
            candidate: Candidate::new(),
            feed,
            secret,
            max_outcome,
            tasks: [news, clock],
        })))
    }

    fn call(&self, mut call: StoreRequest) -> impl Future<Output = Result<StoreReply>> + use<> {
        call.bound();
        let inner = self.0.clone();
        run_to_completion(async move { inner.call(&call).await }, CUT_OFF).map(Result::flatten)
    }

    async fn call_all(&self, mut calls: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        calls.iter_mut().for_each(StoreRequest::bound);
        let (inner, count) = (self.0.clone(), calls.len());
        let answers = run_to_completion(async move { inner.call_all(calls).await }, CUT_OFF).await;
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }

    /// Runs something to its end, whether or not the caller still waits.
    async fn chore<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        chore: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<T> {
        run_in_background(chore(self.0.clone()), CUT_OFF).await?
    }
}

/// Keeps the clock near the leader's.
async fn tell_time(link: Arc<Link>) {
    let mut asking = interval(ASK_TIME);
    loop {
        asking.tick().await;
        if let Err(trouble) = link.info().await {
            tracing::debug!(error = %trouble.into_error(), "nats: the leader does not tell its time");
        }
    }
}

impl Inner {
    pub(crate) fn call(&self, call: &StoreRequest) -> impl Future<Output = Result<StoreReply>> {
        request::serve(&self.link, &self.known, call)
    }

    /// Serves all at once; the calls on one key in their order.
    pub(crate) async fn call_all(&self, calls: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        let mut by_key: HashMap<KeyHash, Vec<usize>> = HashMap::with_capacity(calls.len());
        for (at, call) in calls.iter().enumerate() {
            by_key.entry(*call.key()).or_default().push(at);
        }
        let calls = &calls;
        let in_order = by_key.into_values().map(|places| async move {
            let mut answers = Vec::with_capacity(places.len());
            for at in places {
                answers.push((at, self.call(&calls[at]).await));
            }
            answers
        });
        let mut answers: Vec<_> = join_all(in_order).await.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { link, .. } = &*self.0;
        f.debug_struct("NatsStore").field("names", &link.names).finish_non_exhaustive()
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

        /// The server deletes what has expired by itself; lost owners are put on hold.
        async fn purge(&self, limit: usize) -> Result<Purged> {
            self.chore(move |inner| async move { purge::purge(&inner, limit).await }).await
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            self.chore(move |inner| async move { inner.candidate.lead(&inner.link, term).await })
                .await
        }

        /// Names all keys of the store, and reads from the leader: for operators, not for programs.
        async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
            let query = query.clone();
            self.chore(move |inner| async move { list::list(&inner, &query).await }).await
        }

        /// Names all keys of the store.
        async fn stats(&self) -> Result<Stats> {
            self.chore(|inner| async move { maintenance::stats(&inner).await }).await
        }
    }
}
