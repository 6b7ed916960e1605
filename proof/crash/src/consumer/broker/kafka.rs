//! A Kafka topic with one group, and dead letters in another topic.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use semel_consumer::{Source, dead_letter::DeadLetterQueue};
use semel_source_kafka::{KafkaDeadLetters, KafkaSource};

use super::{super::committed::OffsetWatch, Broker, body, headers, patiently, publish_all};

const TOPIC: &str = "chaos.events";
const DEAD_LETTERS: &str = "chaos.dead";
const GROUP: &str = "billing";
/// Two for each process, so that every kill moves some and leaves others.
const PARTITIONS: i32 = 6;
/// A member that was killed keeps its partitions for the session.
const SESSION: &str = "heartbeat.interval.ms=100&session.timeout.ms=2000";
/// How long one request may take. A request to a killed broker is repeated.
const REQUEST: Duration = Duration::from_secs(2);

pub(super) struct Kafka {
    url: String,
}

impl Kafka {
    pub(super) fn at(url: &str) -> Self {
        Self { url: url.trim_end_matches('/').to_owned() }
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.url.trim_start_matches("kafka://"));
        // Of a broker that is down it would complain with every attempt to connect.
        config.set("log_level", "0");
        config
    }

    async fn create(&self, topic: &str, partitions: i32) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.client().create()?;
        let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let created = admin.create_topics([&topic], &AdminOptions::new()).await?;
        created
            .into_iter()
            .try_for_each(|it| it.map(drop))
            .map_err(|(topic, error)| anyhow!("cannot create the topic {topic}: {error}"))
    }
}

#[async_trait(?Send)]
impl Broker for Kafka {
    async fn prepare(&self) -> Result<()> {
        self.create(TOPIC, PARTITIONS).await?;
        self.create(DEAD_LETTERS, 1).await
    }

    /// The records have no keys, so that copies of an event are in several partitions, and come to several processes.
    async fn publish(&self, ids: &[String]) -> Result<()> {
        let producer: FutureProducer = self.client().set("enable.idempotence", "true").create()?;
        publish_all(ids, async |id| publish_one(&producer, id).await).await
    }

    async fn unsettled(&self) -> Result<u64> {
        let group = GroupOffsets::of(self)?;
        patiently(async || {
            let (committed, ends) = (group.committed()?, group.ends()?);
            let left: i64 = ends.iter().zip(committed).map(|(end, next)| end - next).sum();
            Ok(u64::try_from(left)?)
        })
        .await
    }

    async fn source(&self) -> Result<Arc<dyn Source>> {
        let url = format!("{}/{TOPIC}?group={GROUP}&{SESSION}", self.url);
        Ok(Arc::new(KafkaSource::connect(&url).await?))
    }

    async fn dead_letters(&self) -> Result<Arc<dyn DeadLetterQueue>> {
        Ok(Arc::new(KafkaDeadLetters::connect(&format!("{}/{DEAD_LETTERS}", self.url)).await?))
    }

    fn watch(&self, ledger: &Path) -> Result<Option<OffsetWatch>> {
        OffsetWatch::start(GroupOffsets::of(self)?, ledger).map(Some)
    }
}

async fn publish_one(producer: &FutureProducer, id: &str) -> Result<()> {
    let body = body(id);
    let mut record = OwnedHeaders::new();
    for (key, value) in headers(id) {
        record = record.insert(Header { key, value: Some(value) });
    }
    let record = FutureRecord::<(), _>::to(TOPIC).payload(&body).headers(record);
    producer.send(record, REQUEST).await.map_err(|(error, _)| error)?;
    Ok(())
}

/// What the group has committed, and what the topic contains, as a client reads it that is no member of the group.
pub(in crate::consumer) struct GroupOffsets {
    config: ClientConfig,
    consumer: BaseConsumer,
}

impl GroupOffsets {
    fn of(kafka: &Kafka) -> Result<Self> {
        let mut config = kafka.client();
        config.set("group.id", GROUP).set("enable.auto.commit", "false");
        Ok(Self { consumer: config.create()?, config })
    }

    /// The committed offset of each partition; 0 where there is none.
    pub(in crate::consumer) fn committed(&self) -> Result<Vec<i64>> {
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range(TOPIC, 0, PARTITIONS - 1);
        let committed = self.consumer.committed_offsets(partitions, REQUEST)?;
        let elements = committed.elements();
        let next = elements.iter().map(|element| {
            element.error()?;
            Ok(if let Offset::Offset(next) = element.offset() { next } else { 0 })
        });
        next.collect()
    }

    /// The offset after the last record of each partition.
    fn ends(&self) -> Result<Vec<i64>> {
        let end = |partition| Ok(self.consumer.fetch_watermarks(TOPIC, partition, REQUEST)?.1);
        (0..PARTITIONS).map(end).collect()
    }

    /// The ids of the events of all records, by partition and offset. The topic has no gaps: nothing is published in a
    /// transaction.
    pub(in crate::consumer) fn events(&self) -> Result<Vec<Vec<String>>> {
        let ends = self.ends()?;
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(TOPIC, partition, Offset::Beginning)?;
        }
        // A client of its own: the other one reports every kill of the broker when it is polled.
        let consumer: BaseConsumer = self.config.create()?;
        consumer.assign(&partitions)?;
        let mut events = vec![Vec::new(); ends.len()];
        while events.iter().zip(&ends).any(|(events, end)| events.len() as i64 != *end) {
            let record = consumer.poll(super::PATIENCE).context("records are missing")??;
            let headers = record.headers().context("a record without headers")?;
            let mut ids = headers.iter().filter(|header| header.key == "event_id");
            let id = ids.next().and_then(|header| header.value).context("a record without id")?;
            let events = &mut events[usize::try_from(record.partition())?];
            anyhow::ensure!(record.offset() == events.len() as i64, "the topic has a gap");
            events.push(String::from_utf8(id.to_vec())?);
        }
        Ok(events)
    }
}
