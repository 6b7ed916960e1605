//! A Redis as the front of another store. It may be connected late: what only saves time must not keep a process
//! from starting.

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
    change_feed::News,
    error::unavailable,
    replica_request::{Ask, Put, Said},
    replica_worker::Copier,
    settings::Plan,
};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A Redis as the front of an [`Arbiter`](semel_core::Arbiter), made by [`RedisStoreBuilder::connect_front`].
/// Clones share connections.
///
/// Its copies stand below `PREFIX:r:`, and no store with the same prefix sees them. It belongs to one store, by
/// [`StoreInfo::identity`](semel_core::StoreInfo::identity): nobody else's outcomes are replayed.
#[derive(Clone)]
pub struct RedisFront(Arc<Inner>);

struct Inner {
    place: Arc<Place>,
    opening: Option<AbortHandle>,
}

#[derive(Default)]
struct Place {
    calls: OnceLock<Batcher<Ask, Result<Said>>>,
    news: OnceLock<AbortHandle>,
    feed: ChangeFeed,
}

/// What it takes to open one.
#[derive(Clone)]
pub(crate) struct FrontPlan {
    pub(crate) plan: Arc<Plan>,
    pub(crate) connections: usize,
    pub(crate) limits: BatchLimits,
}

impl RedisFront {
    /// Connects at once, or later if the server does not answer now. Runs on semel's own runtime.
    pub(crate) async fn open(plan: FrontPlan) -> Result<Self> {
        let place = Arc::<Place>::default();
        let opening = match place.fill(&plan).await {
            Ok(()) => None,
            Err(error) if may_pass(&error) => {
                tracing::warn!(%error, "redis: the front is not there; it is used once it is");
                Some(tokio::spawn(opening(plan, place.clone())).abort_handle())
            }
            Err(error) => return Err(error),
        };
        Ok(Self(Arc::new(Inner { place, opening })))
    }

    async fn call_all(&self, asks: Vec<Ask>) -> Vec<Result<Said>> {
        let count = asks.len();
        let answers = match self.0.place.calls.get() {
            Some(calls) => calls.call_all(asks).await,
            None => Err(not_there()),
        };
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }
}

async fn opening(plan: FrontPlan, place: Arc<Place>) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        match place.fill(&plan).await {
            Ok(()) => return tracing::info!("redis: the front is there"),
            Err(error) if may_pass(&error) => {}
            Err(error) => tracing::error!(%error, "redis: the front cannot be used"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Place {
    async fn fill(&self, FrontPlan { plan, connections, limits }: &FrontPlan) -> Result<()> {
        let mut copiers = Vec::with_capacity(*connections);
        for _ in 0..*connections {
            copiers.push(Copier::open(plan.clone()).await?);
        }
        let news = Some(News::subscribe(plan).await?);
        let news = News::pass_on(news, plan.clone(), self.feed.clone());
        let _ = self.news.set(tokio::spawn(news).abort_handle());
        let (calls, batches) = Batcher::new(*limits);
        for copier in copiers {
            tokio::spawn(copier.run(batches.clone()));
        }
        let _ = self.calls.set(calls);
        // What was removed before may have been any key.
        self.feed.notify_all();
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.opening.iter().chain(self.place.news.get()).for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for RedisFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected = self.0.place.calls.get().is_some();
        f.debug_struct("RedisFront").field("connected", &connected).finish_non_exhaustive()
    }
}

/// Unwraps what a connection said to a call of the same kind.
macro_rules! said {
    ($answer:expr, $kind:pat => $value:expr) => {
        $answer.map(|said| match said {
            $kind => $value,
            other => unreachable!("a connection said {other:?} to another kind of call"),
        })
    };
}

#[async_trait]
impl ReplicaCache for RedisFront {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn change_feed(&self) -> Option<ChangeFeed> {
        Some(self.0.place.feed.clone())
    }

    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>> {
        let answers = self.call_all(keys.iter().map(|key| Ask::Look(*key)).collect()).await;
        answers
            .into_iter()
            .map(|said| said!(said, Said::Look(copy) => copy.map(|copy| *copy)))
            .collect()
    }

    async fn put(&self, copies: &[Replica], asked: Instant) -> Vec<Result<()>> {
        let put = |copy: &Replica| Ask::Put(Box::new(Put { copy: copy.clone(), asked }));
        let answers = self.call_all(copies.iter().map(put).collect()).await;
        answers.into_iter().map(|said| said!(said, Said::Put => ())).collect()
    }

    async fn remove(&self, key: &KeyHash) -> Result<bool> {
        let said =
            self.call_all(vec![Ask::Remove(*key)]).await.pop().unwrap_or_else(|| Err(not_there()));
        said!(said, Said::Remove(was) => was)
    }
}

/// A server that is full may have room later; nobody waits for either.
fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full)
}

fn not_there() -> Error {
    unavailable("redis: the front is not connected; see that its server runs, and the log")
}

impl RedisStoreBuilder {
    /// Connects as the front of `authority`: at once, or later if the server does not answer now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] as [`RedisStoreBuilder::connect`], and for a front that belongs to another store. A
    /// server that is found wrong later is only logged, and not used.
    pub async fn connect_front(self, authority: &dyn Store) -> Result<RedisFront> {
        let plan = self.front_plan(&authority.info())?;
        let opened = background::handle().spawn(RedisFront::open(plan)).await;
        opened.map_err(|error| unavailable("redis: the front did not open").with_source(error))?
    }
}
