//! `impl Store`: every step goes through the batcher to a worker, every chore to the chores' connection.

use std::{
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use semel_core::{
    ChangeFeed, Durability, Error, Finding, KeyHash, ListQuery, Purged, Record, Result, Stats,
    StoreId, StoreInfo,
    steps::{StoreReply, StoreRequest},
};

use crate::{
    PostgresStoreBuilder,
    backoff::Backoff,
    change_feed::Bell,
    check,
    connection::{Purpose, Session, in_time},
    error::locked,
    maintenance::Chores,
    meta, migrate,
    pooler::refuse_shared,
    purge::purge,
    request::{Asked, Told},
    runtime_connections::{Lane, LanePlan},
    settings::Settings,
};

/// Runtimes with connections of their own: each of these is a process of the server.
const LANES: usize = 1;

/// Keeps records in a table of PostgreSQL that many processes share. Clones are one store.
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    builder: PostgresStoreBuilder,
    lanes: semel_remote::RuntimeConnections<Lane>,
    chores: Arc<Chores>,
    bell: Bell,
    feed: ChangeFeed,
    identity: Option<StoreId>,
}

impl PostgresStore {
    /// Outcomes over this size are recorded with their body omitted.
    pub const MAX_OUTCOME_BYTES: usize = 16 * 1024 * 1024;

    /// How long calls that are answered together wait for one of them whose record is locked, all in all.
    const NEIGHBOURS_WAIT: Duration = Duration::from_millis(75);

    /// Connects with the default settings.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Settings for the store at this URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=MODE`.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url.into())
    }

    /// Looks at the server and the tables and says what is good and what is not.
    ///
    /// # Errors
    ///
    /// When semel's own runtime is gone.
    pub async fn checks(&self) -> Result<Vec<Finding>> {
        let settings = Settings::new(&self.0.builder)?;
        run_in_background(check::look(settings)).await
    }

    pub(crate) async fn open(builder: PostgresStoreBuilder, settings: Settings) -> Result<Self> {
        let settings = Arc::new(settings);
        refuse_shared(&settings).await?;
        let mut session = Session::open(&settings, Purpose::Chores).await?;
        session.facts.warnings().for_each(|warning| tracing::warn!("postgres: {warning}"));
        if builder.migrate {
            migrate::apply(&mut session, &settings).await?;
        }
        let identity = in_time(&settings, meta::agree(&session, &settings)).await?.identity;
        let feed = ChangeFeed::new();
        let (bell, listening) = Bell::new(settings.clone(), feed.clone());
        let (connections, limits) = (builder.connections, builder.limits);
        let plan = LanePlan { settings: settings.clone(), bell: bell.clone(), connections, limits };
        let own = plan.open(connections.div_ceil(2)).await?;
        tokio::spawn(listening);
        let lanes = semel_remote::RuntimeConnections::new(own, move |runtime| plan.begin(runtime))
            .max_runtimes(LANES);
        let chores = Arc::new(Chores::new(settings, session));
        Ok(Self(Arc::new(Inner { builder, lanes, chores, bell, feed, identity })))
    }

    pub(crate) fn chores(&self) -> Arc<Chores> {
        self.0.chores.clone()
    }

    async fn call(&self, call: StoreRequest) -> Result<StoreReply> {
        let (bytes, decided) =
            (call.outcome_bytes(), call.invalidates_copies().then(|| *call.key()));
        let answer = match self.0.lanes.current().call(Asked::first(call), bytes).await {
            Ok(Told::StoreReply(said)) => Ok(said),
            Ok(Told::Locked(call)) => self.clone().insist_on(call).await,
            Err(error) => Err(error),
        };
        if let Some(key) = decided {
            self.tell(&key).await;
        }
        answer
    }

    async fn insist_on(self, call: StoreRequest) -> Result<StoreReply> {
        let until = Instant::now() + self.0.builder.lock_timeout;
        let insisting = async move { self.insist(vec![Ok(Told::Locked(call))], until).await };
        run_in_background(insisting).await?.pop().unwrap_or_else(|| Err(locked()))
    }

    /// Others are told of an operator's decision before it is answered: its process may end at once, and
    /// their caches would show what is gone.
    async fn tell(&self, key: &KeyHash) {
        let (chores, key) = (self.0.chores.clone(), *key);
        let told = run_in_background(async move { chores.tell(&key).await }).await;
        if let Err(error) = told.flatten() {
            tracing::warn!(%error, "postgres: other nodes were not told of a decision; caches show it late");
        }
    }

    async fn call_all(&self, calls: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        // They are answered together, so the others wait.
        let until = Instant::now() + self.0.builder.lock_timeout.min(Self::NEIGHBOURS_WAIT);
        let count = calls.len();
        let told = self.call_once(calls.into_iter().map(Asked::first).collect()).await;
        if !told.iter().any(is_locked) {
            return told.into_iter().map(said).collect();
        }
        let store = self.clone();
        let insisting = run_in_background(async move { store.insist(told, until).await });
        insisting.await.unwrap_or_else(|error| all(count, &error))
    }

    async fn call_once(&self, calls: Vec<Asked>) -> Vec<Result<Told>> {
        self.0.lanes.current().call_all(calls).await
    }

    /// Makes calls again that came back since somebody else has locked their record, until that has lasted
    /// too long, but once in any case. Not in a worker, where others would wait for them.
    async fn insist(&self, mut told: Vec<Result<Told>>, until: Instant) -> Vec<Result<StoreReply>> {
        let mut pause = Backoff::between(20, 200);
        for tried in 0.. {
            let (mut places, mut calls) = (Vec::new(), Vec::new());
            for (place, told) in told.iter_mut().enumerate().filter(|(_, told)| is_locked(told)) {
                if let Ok(Told::Locked(call)) = mem::replace(told, Err(locked())) {
                    places.push(place);
                    calls.push(Asked::again(call));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if calls.is_empty() || (tried > 0 && left.is_zero()) {
                break;
            }
            tokio::time::sleep(pause.next().min(left)).await;
            for (place, again) in places.into_iter().zip(self.call_once(calls).await) {
                told[place] = again;
            }
        }
        told.into_iter().map(said).collect()
    }
}

const fn is_locked(told: &Result<Told>) -> bool {
    matches!(told, Ok(Told::Locked(_)))
}

fn said(told: Result<Told>) -> Result<StoreReply> {
    match told? {
        Told::StoreReply(said) => Ok(said),
        Told::Locked(_) => Err(locked()),
    }
}

fn all<T>(count: usize, error: &Error) -> Vec<Result<T>> {
    (0..count).map(|_| Err(error.clone())).collect()
}

/// Runs `future` on semel's own runtime, to its end even if the caller goes away.
pub(crate) async fn run_in_background<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    semel_remote::run_in_background(future, "postgres: a call did not come to its end").await
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.0.chores.settings().names;
        let table = format!("{}.{}", names.schema, names.table);
        f.debug_struct("PostgresStore").field("table", &table).finish_non_exhaustive()
    }
}

semel_remote::impl_store_by_requests! {
    impl Store for PostgresStore {
        fn info(&self) -> StoreInfo {
            StoreInfo {
                name: "postgres",
                durability: Durability::Durable,
                max_outcome_bytes: Self::MAX_OUTCOME_BYTES,
                hash_secret: self.0.builder.secret.clone(),
                change_feed: Some(self.0.feed.clone()),
                shared: true,
                identity: self.0.identity,
            }
        }

        async fn purge(&self, limit: usize) -> Result<Purged> {
            let (chores, bell) = (self.0.chores.clone(), self.0.bell.clone());
            run_in_background(async move { purge(&chores, &bell, limit).await }).await?
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            let chores = self.0.chores.clone();
            run_in_background(async move { chores.lead(term).await }).await?
        }

        async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
            let (chores, query) = (self.0.chores.clone(), query.clone());
            run_in_background(async move { chores.list(&query).await }).await?
        }

        async fn stats(&self) -> Result<Stats> {
            let chores = self.0.chores.clone();
            run_in_background(async move { chores.stats().await }).await?
        }
    }
}
