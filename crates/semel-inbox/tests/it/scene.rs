//! An inbox in a schema of its own, and a table of effects beside it.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use semel_inbox::{InboxEvent, InboxPool, InboxTx, InboxVariant, PgInbox, PgInboxBuilder, TxError};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio_postgres::{Client, NoTls};

use crate::common::{Schema, client};

/// Connections of a pool.
pub(crate) const POOL: u32 = 10;

pub(crate) struct Scene<P> {
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

/// A pool of one connection, for which nobody waits long.
pub(crate) trait OfOne {
    fn of_one(url: &str) -> Self;
}

pub(crate) const POOL_TIMEOUT: Duration = Duration::from_secs(2);

impl OfOne for PgPool {
    fn of_one(url: &str) -> Self {
        let options = PgPoolOptions::new().max_connections(1).acquire_timeout(POOL_TIMEOUT);
        options.connect_lazy(url).unwrap()
    }
}

impl OfOne for Pool {
    fn of_one(url: &str) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(1).runtime(Runtime::Tokio1);
        pool.wait_timeout(Some(POOL_TIMEOUT)).build().unwrap()
    }
}

impl Scene<PgPool> {
    pub(crate) async fn over_sqlx() -> Self {
        let schema = Schema::new();
        Self { pool: sqlx_pool(&schema.url), schema }.prepared().await
    }
}

impl Scene<Pool> {
    pub(crate) async fn over_deadpool() -> Self {
        let schema = Schema::new();
        Self { pool: deadpool_pool(&schema.url), schema }.prepared().await
    }
}

impl<P: InboxPool + Clone> Scene<P> {
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

    /// An inbox like this with a table of its own.
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

    pub(crate) async fn takes_effect(
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
    pub(crate) async fn seen(&self, event: &InboxEvent) -> (i64, i64) {
        let id = event.id();
        (
            self.count(&format!("effects WHERE event = '{id}'")).await,
            self.count(&format!("processed_events WHERE event_id::text = '{id}'")).await,
        )
    }

    /// Nobody is left in a transaction on this schema.
    pub(crate) async fn is_quiet(&self) -> bool {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE $1";
        let like = format!("%{}%", self.schema.name);
        self.client().await.query_one(open, &[&like]).await.unwrap().get::<_, i64>(0) == 0
    }
}

/// An event that nobody has seen, of today.
pub(crate) fn event() -> InboxEvent {
    let id: u128 = rand::random();
    let hex = format!("{id:032x}");
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    InboxEvent::new(uuid, "UserRegistered").unwrap()
}

/// The same, with the day that it is by UTC, or was so many days ago.
pub(crate) async fn dated(client: &Client, ago: i32) -> InboxEvent {
    let row = client
        .query_one("SELECT ((now() AT TIME ZONE 'UTC')::date - $1::int)::text", &[&ago])
        .await
        .unwrap();
    event().occurred_on(row.get::<_, String>(0)).unwrap()
}
