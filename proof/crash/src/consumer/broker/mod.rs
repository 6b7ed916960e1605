//! What differs between brokers: how a run prepares, fills and reads each of them.

mod kafka;
mod nats;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, TryStreamExt};
use semel_consumer::{Source, dead_letter::DeadLetterQueue};
use semel_servers::{KAFKA, NATS, Running, TestServer};
use semel_store_nats::NatsStore;
use tokio::time::{sleep, timeout};

pub(super) use self::kafka::GroupOffsets;
use super::committed::OffsetWatch;

const PUBLISHED_AT_ONCE: usize = 256;
/// A server that was restarted answers after it has read its files.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The broker of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BrokerKind {
    /// NATS JetStream. The same server keeps the records.
    Nats,
    /// Apache Kafka.
    Kafka,
}

impl BrokerKind {
    fn server(self) -> TestServer {
        match self {
            Self::Nats => NATS,
            Self::Kafka => KAFKA,
        }
    }
}

/// Where a process of a run connects to.
#[derive(Args, Clone, Debug)]
pub(super) struct Addresses {
    /// The kind of broker.
    #[arg(long)]
    broker: BrokerKind,
    /// The broker.
    #[arg(long)]
    url: String,
    /// The NATS server that keeps the records.
    #[arg(long)]
    store: String,
}

impl Addresses {
    pub(super) fn broker(&self) -> Box<dyn Broker> {
        match self.broker {
            BrokerKind::Nats => Box::new(nats::JetStream::at(&self.url)),
            BrokerKind::Kafka => Box::new(kafka::Kafka::at(&self.url)),
        }
    }

    pub(super) async fn store(&self) -> Result<NatsStore> {
        Ok(NatsStore::connect(&format!("{}/chaos_ids", self.store.trim_end_matches('/'))).await?)
    }

    /// The arguments that a process of the run gets.
    pub(super) fn arguments(&self) -> [String; 3] {
        let broker = self.broker.to_possible_value();
        let broker = broker.map(|value| value.get_name().to_owned()).unwrap_or_default();
        [
            format!("--broker={broker}"),
            format!("--url={}", self.url),
            format!("--store={}", self.store),
        ]
    }
}

/// The servers of a run.
pub(super) struct Servers {
    pub(super) broker: Running,
    /// A server of its own for the records, unless the broker keeps them. It is NATS for every broker, so that two runs
    /// differ in their broker only. It is not killed.
    store: Option<Running>,
}

impl Servers {
    pub(super) fn start(kind: BrokerKind) -> Result<Self> {
        let store = match kind {
            BrokerKind::Nats => None,
            BrokerKind::Kafka => Some(Running::start(&NATS)?),
        };
        Ok(Self { broker: Running::start(&kind.server())?, store })
    }

    pub(super) fn addresses(&self, broker: BrokerKind) -> Addresses {
        let url = |server: &Running| server.url().to_owned();
        let store = self.store.as_ref().unwrap_or(&self.broker);
        Addresses { broker, url: url(&self.broker), store: url(store) }
    }
}

/// The messages and the dead letters of a run.
#[async_trait(?Send)]
pub(super) trait Broker {
    /// Makes what the processes need, so that none of them is killed while it makes it.
    async fn prepare(&self) -> Result<()>;
    /// Publishes an event for each id. A message that may be stored is published again: a copy more does not matter.
    async fn publish(&self, ids: &[String]) -> Result<()>;
    /// Messages that the consumer has not settled.
    async fn unsettled(&self) -> Result<u64>;
    async fn source(&self) -> Result<Arc<dyn Source>>;
    async fn dead_letters(&self) -> Result<Arc<dyn DeadLetterQueue>>;
    /// Writes committed offsets to the ledger from now on. `None` for a broker that has no offsets, because it settles
    /// each message for itself.
    fn watch(&self, _ledger: &Path) -> Result<Option<OffsetWatch>> {
        Ok(None)
    }
}

fn headers(id: &str) -> [(&'static str, &str); 3] {
    [("event_id", id), ("event_type", "OrderPlaced"), ("content-type", "application/json")]
}

fn body(id: &str) -> String {
    serde_json::json!({ "id": id }).to_string()
}

/// Publishes many at the same time, each until it succeeds.
async fn publish_all(ids: &[String], publish: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
    futures_util::stream::iter(ids)
        .map(|id| patiently(async || publish(id).await))
        .buffer_unordered(PUBLISHED_AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Repeats `call` until it succeeds.
pub(super) async fn patiently<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let mut last = None;
    let repeated = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(error) => last = Some(error),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let result = timeout(PATIENCE, repeated).await;
    result.map_err(|_| last.unwrap_or_else(|| anyhow!("the server does not answer")))
}
