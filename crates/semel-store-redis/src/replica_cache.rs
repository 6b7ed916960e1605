//! A Redis as the front of another store: a replica cache of its recorded outcomes. If the server cannot be reached,
//! the front is connected later: it only saves time, so a process must start without it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use semel_core::{
    ChangeFeed, Error, ErrorKind, KeyHash, Replica, ReplicaCache, Result, Store, background,
};
use semel_remote::batch::{BatchLimits, Batcher};
use tokio::{task::AbortHandle, time::sleep};

use crate::{
    RedisStoreBuilder,
    change_feed::RedisSubscription,
    error::unavailable,
    replica_request::{ReplicaPut, ReplicaReply, ReplicaRequest},
    replica_worker::ReplicaWorker,
    settings::RedisSettings,
};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A Redis as the front of an [`Arbiter`](semel_core::Arbiter), made by [`RedisStoreBuilder::connect_front`].
/// Clones share connections.
///
/// Its replicas have keys below `PREFIX:r:`, which no store with the same prefix reads. It belongs to one store, by
/// [`StoreInfo::identity`](semel_core::StoreInfo::identity), and replays outcomes of that store only.
#[derive(Clone)]
pub struct RedisFront(Arc<RedisFrontState>);

struct RedisFrontState {
    connections: Arc<FrontConnections>,
    connecting: Option<AbortHandle>,
}

/// Empty until the server was reached.
#[derive(Default)]
struct FrontConnections {
    requests: OnceLock<Batcher<ReplicaRequest, Result<ReplicaReply>>>,
    subscription: OnceLock<AbortHandle>,
    feed: ChangeFeed,
}

/// The settings of a front's connections.
#[derive(Clone)]
pub(crate) struct ReplicaCacheSettings {
    pub(crate) settings: Arc<RedisSettings>,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl RedisFront {
    /// Connects at once, or later if the server does not answer now. Runs on the background runtime.
    pub(crate) async fn open(settings: ReplicaCacheSettings) -> Result<Self> {
        let connections = Arc::<FrontConnections>::default();
        let connecting = match connections.connect(&settings).await {
            Ok(()) => None,
            Err(error) if is_temporary(&error) => {
                tracing::warn!(%error, "redis: the front cannot be reached; semel connects to it later");
                Some(tokio::spawn(connect_later(settings, connections.clone())).abort_handle())
            }
            Err(error) => return Err(error),
        };
        Ok(Self(Arc::new(RedisFrontState { connections, connecting })))
    }

    async fn call_all(&self, requests: Vec<ReplicaRequest>) -> Vec<Result<ReplicaReply>> {
        let count = requests.len();
        let replies = match self.0.connections.requests.get() {
            Some(batcher) => batcher.call_all(requests).await,
            None => Err(not_connected()),
        };
        replies.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }
}

async fn connect_later(settings: ReplicaCacheSettings, connections: Arc<FrontConnections>) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        match connections.connect(&settings).await {
            Ok(()) => return tracing::info!("redis: the front is connected"),
            Err(error) if is_temporary(&error) => {}
            Err(error) => tracing::error!(%error, "redis: the front cannot be used"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl FrontConnections {
    async fn connect(
        &self,
        ReplicaCacheSettings { settings, connections, limits }: &ReplicaCacheSettings,
    ) -> Result<()> {
        let mut workers = Vec::with_capacity(*connections);
        for _ in 0..*connections {
            workers.push(ReplicaWorker::open(settings.clone()).await?);
        }
        let subscription = Some(RedisSubscription::subscribe(settings).await?);
        let subscription =
            RedisSubscription::notify(subscription, settings.clone(), self.feed.clone());
        let _ = self.subscription.set(tokio::spawn(subscription).abort_handle());
        let (batcher, batches) = Batcher::new(*limits);
        for worker in workers {
            tokio::spawn(worker.run(batches.clone()));
        }
        let _ = self.requests.set(batcher);
        // Before the subscription, any replica may have been removed.
        self.feed.notify_all();
        Ok(())
    }
}

impl Drop for RedisFrontState {
    fn drop(&mut self) {
        self.connecting
            .iter()
            .chain(self.connections.subscription.get())
            .for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for RedisFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected = self.0.connections.requests.get().is_some();
        f.debug_struct("RedisFront").field("connected", &connected).finish_non_exhaustive()
    }
}

/// Unwraps a reply, which has the kind of its request.
macro_rules! reply {
    ($reply:expr, $kind:pat => $value:expr) => {
        $reply.map(|reply| match reply {
            $kind => $value,
            other => unreachable!("a worker replied {other:?} to another kind of request"),
        })
    };
}

#[async_trait]
impl ReplicaCache for RedisFront {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn change_feed(&self) -> Option<ChangeFeed> {
        Some(self.0.connections.feed.clone())
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        let replies =
            self.call_all(keys.iter().map(|key| ReplicaRequest::Get(*key)).collect()).await;
        replies
            .into_iter()
            .map(|reply| reply!(reply, ReplicaReply::Get(replica) => replica.map(|replica| *replica)))
            .collect()
    }

    async fn put(&self, replicas: &[Replica], requested: Instant) -> Vec<Result<()>> {
        let put = |replica: &Replica| {
            ReplicaRequest::Put(Box::new(ReplicaPut { replica: replica.clone(), requested }))
        };
        let replies = self.call_all(replicas.iter().map(put).collect()).await;
        replies.into_iter().map(|reply| reply!(reply, ReplicaReply::Put => ())).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let reply = self
            .call_all(vec![ReplicaRequest::Remove(*key)])
            .await
            .pop()
            .unwrap_or_else(|| Err(not_connected()));
        reply!(reply, ReplicaReply::Remove(existed) => existed)
    }
}

/// True for a server that cannot be reached or is full: it may accept a connection later.
fn is_temporary(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full)
}

fn not_connected() -> Error {
    unavailable("redis: the front is not connected; check that its server runs, and see the log")
}

impl RedisStoreBuilder {
    /// Connects as the front of `authority`: at once, or later if the server does not answer now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] as [`RedisStoreBuilder::connect`], and for a front that belongs to another store. If a
    /// server that is reached later is unfit, that is logged, and the front is not used.
    pub async fn connect_front(self, authority: &dyn Store) -> Result<RedisFront> {
        let settings = self.replica_cache_settings(&authority.info())?;
        let opened = background::handle().spawn(RedisFront::open(settings)).await;
        opened.map_err(|error| unavailable("redis: the front did not open").with_source(error))?
    }
}
