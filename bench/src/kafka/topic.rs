//! The topic of the benchmark.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
    types::RDKafkaErrorCode,
};
use semel_bench::events::{body, headers};

use crate::KafkaBench;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct BenchTopic {
    brokers: String,
    name: String,
    groups: AtomicU64,
}

impl BenchTopic {
    /// A new topic.
    pub(crate) async fn create(options: &KafkaBench) -> Result<Self> {
        let brokers = options.url.strip_prefix("kafka://").context("the URL is kafka://HOST")?;
        let name = format!("bench-{:016x}", rand::random::<u64>());
        let topic = Self { brokers: brokers.to_owned(), name, groups: AtomicU64::new(0) };
        let new = NewTopic::new(&topic.name, options.partitions, TopicReplication::Fixed(1));
        for created in topic.admin()?.create_topics([&new], &AdminOptions::new()).await? {
            created.map_err(|(name, code)| anyhow::anyhow!("topic {name}: {code}"))?;
        }
        Ok(topic)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    /// The settings of every client.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A group that has read nothing.
    pub(crate) fn new_group(&self) -> String {
        format!("{}-{}", self.name, self.groups.fetch_add(1, Relaxed))
    }

    /// The URL of a source with a new group.
    pub(crate) fn source_url(&self) -> String {
        format!("kafka://{}/{}?group={}", self.brokers, self.name, self.new_group())
    }

    /// Publishes events, each with a key of its own.
    pub(crate) fn publish(&self, count: u64) -> Result<()> {
        let producer: ThreadedProducer<DefaultProducerContext> = self.client().create()?;
        for id in 0..count {
            let mut record_headers = OwnedHeaders::new();
            for (key, value) in &headers(id) {
                record_headers = record_headers.insert(Header { key, value: Some(value) });
            }
            let (key, payload) = (format!("order-{id}"), body(id));
            let record = BaseRecord::to(&self.name).key(&key).payload(&payload);
            let mut record = record.headers(record_headers);
            while let Err((error, refused)) = producer.send(record) {
                let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error else {
                    bail!("cannot publish: {error}");
                };
                std::thread::sleep(Duration::from_millis(10));
                record = refused;
            }
        }
        Ok(producer.flush(PATIENCE)?)
    }

    pub(crate) async fn delete(&self) -> Result<()> {
        self.admin()?.delete_topics(&[&self.name], &AdminOptions::new()).await?;
        Ok(())
    }
}
