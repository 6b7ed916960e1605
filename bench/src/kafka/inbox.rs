//! Batches in transactions of the inbox, beside batches of bare claims: an insert of the same rows that decides nothing.

use std::time::Instant;

use anyhow::{Result, ensure};
use deadpool_postgres::{Manager, Pool};
use futures_util::future::try_join_all;
use semel_bench::events::OrderPlaced;
use semel_consumer::{Event, EventContext, Handler, transaction_fn};
use semel_core::WorkError;
use semel_inbox::{DeadpoolTx, PgInbox};
use tokio_postgres::NoTls;

use crate::{KafkaBench, counted_source, topic::BenchTopic};

const TABLES: &str = "\
DROP SCHEMA IF EXISTS kafka_bench CASCADE; CREATE SCHEMA kafka_bench;
CREATE TABLE kafka_bench.orders (id text PRIMARY KEY, cents bigint NOT NULL)";
const EMPTY: [&str; 2] =
    ["TRUNCATE kafka_bench.orders, kafka_bench.processed_events, kafka_bench.bare", "CHECKPOINT"];
const BARE: &str = "INSERT INTO kafka_bench.bare (consumer, event_id, event_type) \
    SELECT 'bench', id, 'OrderPlaced' FROM unnest($1::text[]) AS id ON CONFLICT DO NOTHING";
const ORDER: &str = "INSERT INTO kafka_bench.orders VALUES ($1, 500)";
const RECORDED: &str = "SELECT count(*) FROM kafka_bench.processed_events";
const ORDERS: &str = "SELECT count(*) FROM kafka_bench.orders";

pub(crate) struct Database {
    pool: Pool,
    inbox: PgInbox<Pool>,
}

impl Database {
    pub(crate) async fn create(options: &KafkaBench) -> Result<Self> {
        let manager = Manager::new(options.postgres_url.parse()?, NoTls);
        let pool = Pool::builder(manager).max_size(options.transactions + 1).build()?;
        let client = pool.get().await?;
        client.batch_execute(TABLES).await?;
        let inbox = PgInbox::builder(pool.clone()).schema("kafka_bench").consumer("bench");
        let inbox = inbox.install(true).build().await?;
        let bare =
            "CREATE TABLE kafka_bench.bare (LIKE kafka_bench.processed_events INCLUDING ALL)";
        client.batch_execute(bare).await?;
        Ok(Self { pool, inbox })
    }

    pub(crate) async fn remove(&self) -> Result<()> {
        Ok(self.pool.get().await?.batch_execute("DROP SCHEMA kafka_bench CASCADE").await?)
    }

    async fn empty(&self) -> Result<()> {
        let client = self.pool.get().await?;
        for statement in EMPTY {
            client.batch_execute(statement).await?;
        }
        Ok(())
    }

    async fn count(&self, count: &str) -> Result<i64> {
        Ok(self.pool.get().await?.query_one(count, &[]).await?.get(0))
    }

    /// Rows per second of bare claims.
    pub(crate) async fn bare_claims(&self, options: &KafkaBench) -> Result<f64> {
        self.empty().await?;
        let ids: Vec<_> = (0..options.messages).map(event_id).collect();
        let batches = parking_lot::Mutex::new(ids.chunks(options.batch));
        let connection = || async {
            let client = self.pool.get().await?;
            let claim = client.prepare(BARE).await?;
            loop {
                let next = batches.lock().next();
                let Some(ids) = next else { return anyhow::Ok(()) };
                client.execute(&claim, &[&ids]).await?;
            }
        };
        let started = Instant::now();
        try_join_all((0..options.transactions).map(|_| connection())).await?;
        Ok(options.messages as f64 / started.elapsed().as_secs_f64())
    }

    /// New events per second, with a handler that writes nothing.
    pub(crate) async fn claims(&self, topic: &BenchTopic, options: &KafkaBench) -> Result<f64> {
        self.empty().await?;
        let rate = self.rate(topic, options, without_effect()).await?;
        let recorded = self.count(RECORDED).await?;
        ensure!(recorded == i64::try_from(options.messages)?, "{recorded} events are recorded");
        Ok(rate)
    }

    /// New events per second, with a handler that inserts a row.
    pub(crate) async fn effects(&self, topic: &BenchTopic, options: &KafkaBench) -> Result<f64> {
        self.empty().await?;
        let rate = self.rate(topic, options, with_insert()).await?;
        let orders = self.count(ORDERS).await?;
        ensure!(orders == i64::try_from(options.messages)?, "{orders} orders were inserted");
        Ok(rate)
    }

    /// The same events again: none of them runs, or the insert would fail.
    pub(crate) async fn duplicates(&self, topic: &BenchTopic, options: &KafkaBench) -> Result<f64> {
        self.rate(topic, options, with_insert()).await
    }

    async fn rate(
        &self,
        topic: &BenchTopic,
        options: &KafkaBench,
        handler: impl Handler<DeadpoolTx>,
    ) -> Result<f64> {
        let &KafkaBench { batch, transactions, .. } = options;
        counted_source::rate(topic, options.messages, |builder| {
            let builder = builder.concurrency(transactions);
            // As many events wait as are in transactions.
            let builder = builder.max_in_flight(2 * batch * transactions);
            builder.transactional_batch(self.inbox.clone(), handler, batch).build()
        })
        .await
    }
}

/// The id of an event as the inbox records it.
fn event_id(id: u64) -> String {
    format!("idempotency:/shop/orders event-{id}")
}

fn without_effect() -> impl Handler<DeadpoolTx> {
    transaction_fn(|_: &mut DeadpoolTx, event: Event<OrderPlaced>, _: EventContext| {
        Box::pin(async move { Ok::<_, WorkError>(event.data.order_id.len()) })
    })
}

fn with_insert() -> impl Handler<DeadpoolTx> {
    transaction_fn(|tx: &mut DeadpoolTx, event: Event<OrderPlaced>, _: EventContext| {
        Box::pin(async move {
            let insert = tx.prepare_cached(ORDER).await?;
            tx.execute(&insert, &[&event.data.order_id]).await?;
            Ok::<_, WorkError>(event.data.order_id.len())
        })
    })
}
