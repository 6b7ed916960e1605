//! `impl Store`: every step goes through a queue to a worker, everything else to the maintenance connection.

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
    backoff::PgBackoff,
    change_feed::PgNotifier,
    check,
    connection::{ConnectionPurpose, PgConnection, within_connect_timeout},
    error::locked,
    maintenance::PgMaintenance,
    meta, migrate,
    pooler::refuse_shared_pool,
    purge::purge,
    request::{PgReply, PgRequest},
    runtime_connections::{PgRequestQueue, PgWorkerGroups},
    settings::PgSettings,
};

/// Runtimes that get connections of their own, beside semel's own. Each connection is a process on the server.
const MAX_RUNTIMES: usize = 1;

/// Keeps records in a table of PostgreSQL that many processes share. Clones are one store.
#[derive(Clone)]
pub struct PostgresStore(Arc<PgStoreInner>);

struct PgStoreInner {
    builder: PostgresStoreBuilder,
    connections: semel_remote::RuntimeConnections<PgRequestQueue>,
    maintenance: Arc<PgMaintenance>,
    notifier: PgNotifier,
    feed: ChangeFeed,
    identity: Option<StoreId>,
}

impl PostgresStore {
    /// Outcomes over this size are recorded with their body omitted.
    pub const MAX_OUTCOME_BYTES: usize = 16 * 1024 * 1024;

    /// How long a call with several requests waits in total for those whose record is locked.
    const BATCH_LOCK_WAIT: Duration = Duration::from_millis(75);

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

    /// Checks the server and the tables, and returns what is good and what is not.
    ///
    /// # Errors
    ///
    /// When semel's own runtime is gone.
    pub async fn checks(&self) -> Result<Vec<Finding>> {
        let settings = PgSettings::new(&self.0.builder)?;
        run_in_background(check::check(settings)).await
    }

    pub(crate) async fn open(builder: PostgresStoreBuilder, settings: PgSettings) -> Result<Self> {
        let settings = Arc::new(settings);
        refuse_shared_pool(&settings).await?;
        let mut connection = PgConnection::open(&settings, ConnectionPurpose::Maintenance).await?;
        connection.facts.warnings().for_each(|warning| tracing::warn!("postgres: {warning}"));
        if builder.migrate {
            migrate::apply(&mut connection, &settings).await?;
        }
        let identity =
            within_connect_timeout(&settings, meta::check_and_settle(&connection, &settings))
                .await?
                .identity;
        let feed = ChangeFeed::new();
        let (notifier, listening) = PgNotifier::new(settings.clone(), feed.clone());
        let (connections, limits) = (builder.connections, builder.limits);
        let groups = PgWorkerGroups {
            settings: settings.clone(),
            notifier: notifier.clone(),
            connections,
            limits,
        };
        let own = groups.open(connections.div_ceil(2)).await?;
        tokio::spawn(listening);
        let connections =
            semel_remote::RuntimeConnections::new(own, move |runtime| groups.start_on(runtime))
                .max_runtimes(MAX_RUNTIMES);
        let maintenance = Arc::new(PgMaintenance::new(settings, connection));
        Ok(Self(Arc::new(PgStoreInner {
            builder,
            connections,
            maintenance,
            notifier,
            feed,
            identity,
        })))
    }

    pub(crate) fn maintenance(&self) -> Arc<PgMaintenance> {
        self.0.maintenance.clone()
    }

    async fn call(&self, request: StoreRequest) -> Result<StoreReply> {
        let (bytes, invalidated) =
            (request.outcome_bytes(), request.invalidates_copies().then(|| *request.key()));
        let queue = self.0.connections.current();
        let reply = match queue.call(PgRequest::first(request), bytes).await {
            Ok(PgReply::Done(reply)) => Ok(reply),
            Ok(PgReply::Locked(request)) => self.clone().retry_locked_one(request).await,
            Err(error) => Err(error),
        };
        if let Some(key) = invalidated {
            self.notify_now(&key).await;
        }
        reply
    }

    async fn retry_locked_one(self, request: StoreRequest) -> Result<StoreReply> {
        let until = Instant::now() + self.0.builder.lock_timeout;
        let retrying =
            async move { self.retry_locked(vec![Ok(PgReply::Locked(request))], until).await };
        run_in_background(retrying).await?.pop().unwrap_or_else(|| Err(locked()))
    }

    /// Notifies other nodes of an operator's decision before the operator gets the reply: the operator's process
    /// may end right after it, and caches of other nodes would replay a removed outcome.
    async fn notify_now(&self, key: &KeyHash) {
        let (maintenance, key) = (self.0.maintenance.clone(), *key);
        let notified = run_in_background(async move { maintenance.notify(&key).await }).await;
        if let Err(error) = notified.flatten() {
            tracing::warn!(%error, "postgres: other nodes were not notified of a decision; their caches follow late");
        }
    }

    async fn call_all(&self, requests: Vec<StoreRequest>) -> Vec<Result<StoreReply>> {
        // The caller gets all replies together, so a locked record delays the others.
        let until = Instant::now() + self.0.builder.lock_timeout.min(Self::BATCH_LOCK_WAIT);
        let count = requests.len();
        let replies = self.send_once(requests.into_iter().map(PgRequest::first).collect()).await;
        if !replies.iter().any(is_locked) {
            return replies.into_iter().map(or_locked).collect();
        }
        let store = self.clone();
        let retrying = run_in_background(async move { store.retry_locked(replies, until).await });
        retrying.await.unwrap_or_else(|error| all(count, &error))
    }

    async fn send_once(&self, requests: Vec<PgRequest>) -> Vec<Result<PgReply>> {
        self.0.connections.current().call_all(requests).await
    }

    /// Sends requests again that were returned because another transaction has locked their record: at least once,
    /// and until `until`. Not in a worker, where the requests of other callers would wait for them.
    async fn retry_locked(
        &self,
        mut replies: Vec<Result<PgReply>>,
        until: Instant,
    ) -> Vec<Result<StoreReply>> {
        let mut pause = PgBackoff::between(20, 200);
        for tries in 0.. {
            let (mut indexes, mut requests) = (Vec::new(), Vec::new());
            for (index, reply) in replies.iter_mut().enumerate().filter(|(_, it)| is_locked(it)) {
                if let Ok(PgReply::Locked(request)) = mem::replace(reply, Err(locked())) {
                    indexes.push(index);
                    requests.push(PgRequest::again(request));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if requests.is_empty() || (tries > 0 && left.is_zero()) {
                break;
            }
            tokio::time::sleep(pause.next().min(left)).await;
            for (index, reply) in indexes.into_iter().zip(self.send_once(requests).await) {
                replies[index] = reply;
            }
        }
        replies.into_iter().map(or_locked).collect()
    }
}

const fn is_locked(reply: &Result<PgReply>) -> bool {
    matches!(reply, Ok(PgReply::Locked(_)))
}

fn or_locked(reply: Result<PgReply>) -> Result<StoreReply> {
    match reply? {
        PgReply::Done(reply) => Ok(reply),
        PgReply::Locked(_) => Err(locked()),
    }
}

fn all<T>(count: usize, error: &Error) -> Vec<Result<T>> {
    (0..count).map(|_| Err(error.clone())).collect()
}

/// Runs `future` on semel's background runtime, to its end even if the caller drops its call.
pub(crate) async fn run_in_background<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    semel_remote::run_in_background(future, "postgres: a call was interrupted").await
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.0.maintenance.settings().names;
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
            let (maintenance, notifier) = (self.0.maintenance.clone(), self.0.notifier.clone());
            run_in_background(async move { purge(&maintenance, &notifier, limit).await }).await?
        }

        async fn lead(&self, term: Duration) -> Result<bool> {
            let maintenance = self.0.maintenance.clone();
            run_in_background(async move { maintenance.lead(term).await }).await?
        }

        async fn list(&self, query: &ListQuery) -> Result<Vec<Record>> {
            let (maintenance, query) = (self.0.maintenance.clone(), query.clone());
            run_in_background(async move { maintenance.list(&query).await }).await?
        }

        async fn stats(&self) -> Result<Stats> {
            let maintenance = self.0.maintenance.clone();
            run_in_background(async move { maintenance.stats().await }).await?
        }
    }
}
