//! A topic and a group that no other test uses.

use std::time::Duration;

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use semel_consumer::{Delivery, Message, Source};
use semel_servers::needed;
use semel_source_kafka::{KafkaSource, KafkaSourceBuilder};
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine, a restart of a broker, and a group that notices a lost member.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// A group whose members share the partitions among themselves, and that notices soon that a member is gone.
pub(crate) const CLASSIC: &str = "&heartbeat.interval.ms=100&session.timeout.ms=2000";
/// A group whose partitions the broker shares.
pub(crate) const KIP_848: &str = "&group-protocol=consumer";
/// Partitions of a topic.
pub(crate) const PARTITIONS: i32 = 3;

/// The address of the broker that tests share, without scheme.
pub(crate) fn shared() -> String {
    needed("SEMEL_TEST_KAFKA_URL").trim_start_matches("kafka://").to_owned()
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:016x}", rand::random::<u64>())
}

/// Waits until `is_so`.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never happened: {what}"));
}

/// The result of a future that must end.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it ends")
}

/// A topic with a group.
pub(crate) struct TestTopic {
    pub(crate) brokers: String,
    pub(crate) name: String,
    pub(crate) group: String,
    /// More of the source's URL.
    pub(crate) options: &'static str,
    producer: FutureProducer,
}

impl TestTopic {
    /// A topic on the shared broker.
    pub(crate) async fn new() -> Self {
        Self::on(&shared(), PARTITIONS, 1).await
    }

    /// A topic with one partition on the shared broker.
    pub(crate) async fn with_one_partition() -> Self {
        Self::on(&shared(), 1, 1).await
    }

    /// A topic on the brokers at `brokers`.
    pub(crate) async fn on(brokers: &str, partitions: i32, replicas: i32) -> Self {
        let topic = Self::named(brokers);
        topic.create(&topic.name, partitions, replicas, &[]).await;
        topic
    }

    /// The name of a topic, which the caller creates.
    pub(crate) fn named(brokers: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            name: unique("t"),
            group: unique("g"),
            options: CLASSIC,
            producer: client(brokers)
                .set("linger.ms", "0")
                // Each record without a key has a partition of its own, so that all partitions get some.
                .set("sticky.partitioning.linger.ms", "0")
                .create()
                .unwrap(),
        }
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        partitions: i32,
        replicas: i32,
        settings: &[(&str, &str)],
    ) {
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let created = self.admin().create_topics([&new], &AdminOptions::new()).await.unwrap();
        created.into_iter().next().unwrap().unwrap();
        let consumer: BaseConsumer = client(&self.brokers).create().unwrap();
        // The controller confirms a new topic before the brokers know it.
        until("the topic is known", async || {
            let metadata = consumer.fetch_metadata(Some(name), PATIENCE).unwrap();
            metadata.topics()[0].partitions().len() == usize::try_from(partitions).unwrap()
        })
        .await;
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        client(&self.brokers).create().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://{}/{}", self.brokers, self.name)
    }

    pub(crate) fn source_url(&self) -> String {
        format!("{}?group={}{}", self.url(), self.group, self.options)
    }

    pub(crate) fn builder(&self) -> KafkaSourceBuilder {
        KafkaSource::builder(&self.source_url())
    }

    pub(crate) async fn source(&self) -> KafkaSource {
        self.builder().connect().await.unwrap()
    }

    /// Publishes a message, and waits until the broker has it.
    pub(crate) async fn publish(&self, message: &Message) {
        let mut headers = OwnedHeaders::new();
        for header in &message.headers {
            headers = headers.insert(Header { key: &header.name, value: Some(&header.value[..]) });
        }
        if let Some(id) = &message.message_id {
            headers = headers.insert(Header { key: "Message-Id", value: Some(id.as_bytes()) });
        }
        let mut record = FutureRecord::<str, [u8]>::to(&self.name).headers(headers);
        if !message.is_tombstone {
            record = record.payload(&message.body);
        }
        if let Some(key) = &message.ordering_key {
            record = record.key(key);
        }
        self.producer.send(record, PATIENCE).await.unwrap();
    }

    /// Publishes messages whose bodies are their numbers.
    pub(crate) async fn publish_numbers(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.publish(&Message::new("", number.to_string())).await;
        }
    }

    /// Produces a record as it is.
    pub(crate) async fn produce(&self, record: FutureRecord<'_, [u8], [u8]>) {
        self.producer.send(record, PATIENCE).await.unwrap();
    }

    /// The committed offsets of all partitions; -1 where there is none.
    pub(crate) fn committed(&self) -> Vec<i64> {
        let consumer: BaseConsumer =
            client(&self.brokers).set("group.id", &self.group).create().unwrap();
        committed(&consumer, &self.name)
    }
}

/// The committed offsets of all partitions of a topic, for the group of `consumer`.
pub(crate) fn committed(consumer: &BaseConsumer, topic: &str) -> Vec<i64> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let partitions = metadata.topics()[0].partitions();
    let mut asked = TopicPartitionList::new();
    for partition in partitions {
        asked.add_partition(topic, partition.id());
    }
    let committed = consumer.committed_offsets(asked, PATIENCE).unwrap();
    let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { -1 };
    committed.elements().iter().map(|element| offset(element.offset())).collect()
}

pub(crate) fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

/// Receives `count` deliveries, in calls of at most `max`.
pub(crate) async fn receive(source: &KafkaSource, count: usize, max: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        let received = soon(source.receive(max)).await.unwrap();
        assert!((1..=max).contains(&received.len()), "{}", received.len());
        deliveries.extend(received);
    }
    deliveries
}

/// Receives one delivery.
pub(crate) async fn receive_one(source: &KafkaSource) -> Delivery {
    receive(source, 1, 1).await.remove(0)
}

/// The body of a delivery.
pub(crate) fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.message.body).unwrap()
}
