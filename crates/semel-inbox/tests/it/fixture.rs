//! A schema for each test, with an inbox and a table of effects.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use semel_inbox::{InboxEvent, InboxPool, InboxTx, InboxVariant, PgInbox, PgInboxBuilder, TxError};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio_postgres::{Client, NoTls};

use crate::common::{Schema, client};

/// Connections of a pool.
pub(crate) const POOL: u32 = 10;

pub(crate) struct InboxFixture<P> {
    pub(crate) pool: P,
    pub(crate) schema: Schema,
}

pub(crate) fn sqlx_pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(POOL).connect_lazy(url).unwrap()
}

pub(crate) fn deadpool_pool(url: &str) -> Pool {
    let manager = Manager::new(url.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(POOL as usize).build().unwrap()
}

/// A pool of one connection with a short timeout.
pub(crate) trait SingleConnectionPool {
    fn single(url: &str) -> Self;
}

pub(crate) const POOL_TIMEOUT: Duration = Duration::from_secs(2);

impl SingleConnectionPool for PgPool {
    fn single(url: &str) -> Self {
        let options = PgPoolOptions::new().max_connections(1).acquire_timeout(POOL_TIMEOUT);
        options.connect_lazy(url).unwrap()
    }
}

impl SingleConnectionPool for Pool {
    fn single(url: &str) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(1).runtime(Runtime::Tokio1);
        pool.wait_timeout(Some(POOL_TIMEOUT)).build().unwrap()
    }
}

impl InboxFixture<PgPool> {
    pub(crate) async fn over_sqlx() -> Self {
        let schema = Schema::new();
        Self { pool: sqlx_pool(&schema.url), schema }.prepared().await
    }
}

impl InboxFixture<Pool> {
    pub(crate) async fn over_deadpool() -> Self {
        let schema = Schema::new();
        Self { pool: deadpool_pool(&schema.url), schema }.prepared().await
    }
}

impl<P: InboxPool + Clone> InboxFixture<P> {
    async fn prepared(self) -> Self {
        let name = &self.schema.name;
        let tables = format!(
            "CREATE SCHEMA {name}; CREATE TABLE {name}.effects (event text, said text DEFAULT '')"
        );
        self.client().await.batch_execute(&tables).await.unwrap();
        self
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.schema.url).await
    }

    /// A builder of an inbox in this schema.
    pub(crate) fn builder(&self) -> PgInboxBuilder<P> {
        PgInbox::builder(self.pool.clone()).schema(&self.schema.name).consumer("test").install(true)
    }

    pub(crate) async fn inbox(&self, variant: InboxVariant) -> PgInbox<P> {
        self.builder().variant(variant).build().await.unwrap()
    }

    /// The statement that is the effect of an event.
    pub(crate) fn effect(&self, event: &InboxEvent) -> String {
        format!("INSERT INTO {}.effects (event) VALUES ('{}')", self.schema.name, event.id())
    }

    pub(crate) async fn insert_effect(
        &self,
        tx: &mut impl InboxTx,
        event: &InboxEvent,
    ) -> Result<(), TxError> {
        tx.run(&self.effect(event)).await
    }

    pub(crate) async fn count(&self, from: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {}.{from}", self.schema.name);
        self.client().await.query_one(&count, &[]).await.unwrap().get(0)
    }

    /// Effects and records of an event.
    pub(crate) async fn effects_and_records(&self, event: &InboxEvent) -> (i64, i64) {
        let id = event.id();
        (
            self.count(&format!("effects WHERE event = '{id}'")).await,
            self.count(&format!("processed_events WHERE event_id::text = '{id}'")).await,
        )
    }

    /// No connection is idle in a transaction that used this schema.
    pub(crate) async fn has_no_open_transaction(&self) -> bool {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE $1";
        let like = format!("%{}%", self.schema.name);
        self.client().await.query_one(open, &[&like]).await.unwrap().get::<_, i64>(0) == 0
    }
}

/// A new event.
pub(crate) fn event() -> InboxEvent {
    let id: u128 = rand::random();
    let hex = format!("{id:032x}");
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    InboxEvent::new(uuid, "UserRegistered").unwrap()
}

/// A new event of the day, by UTC, that was `ago` days ago.
pub(crate) async fn event_of_day(client: &Client, ago: i32) -> InboxEvent {
    let row = client
        .query_one("SELECT ((now() AT TIME ZONE 'UTC')::date - $1::int)::text", &[&ago])
        .await
        .unwrap();
    event().occurred_on(row.get::<_, String>(0)).unwrap()
}
