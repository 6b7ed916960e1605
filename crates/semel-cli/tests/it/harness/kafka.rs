//! A topic and a consumer group of one test on the Kafka broker that all tests share.

use std::fmt;

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use semel_servers::needed;

use super::{PATIENCE, cloud_event, jetstream::unique, until};

const PARTITIONS: i32 = 3;

/// A topic with three partitions, and a group.
pub(crate) struct KafkaTopic {
    brokers: String,
    pub(crate) name: String,
    pub(crate) group: String,
    producer: FutureProducer,
}

impl KafkaTopic {
    /// A topic that keeps records for a week.
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A topic with these settings.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let brokers = needed("SEMEL_TEST_KAFKA_URL").trim_start_matches("kafka://").to_owned();
        let producer = client(&brokers).set("linger.ms", "0").create().unwrap();
        let topic = Self { brokers, name: unique(), group: unique(), producer };
        topic.create(&topic.name, settings).await;
        topic
    }

    pub(crate) async fn create(&self, name: &str, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = client(&self.brokers).create().unwrap();
        let new = NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let created = admin.create_topics([&new], &AdminOptions::new()).await.unwrap();
        created.into_iter().next().unwrap().unwrap();
    }

    /// The URL of the source.
    pub(crate) fn url(&self) -> String {
        self.url_of(&self.name, &format!("?group={}&heartbeat.interval.ms=100", self.group))
    }

    /// The URL of a topic.
    pub(crate) fn url_of(&self, topic: &str, options: &str) -> String {
        format!("kafka://{}/{topic}{options}", self.brokers)
    }

    /// Publishes a CloudEvent of the type `order.placed`.
    pub(crate) async fn publish(&self, id: &str) {
        let headers = cloud_event(id).into_iter().fold(OwnedHeaders::new(), |all, (key, value)| {
            let key = key.replace("ce-", "ce_");
            all.insert(Header { key: &key, value: Some(value) })
        });
        let body = format!("{{\"order\":\"{id}\"}}");
        let record = FutureRecord::to(&self.name).key(id).payload(&body).headers(headers);
        self.producer.send(record, PATIENCE).await.unwrap();
    }

    /// Waits until the group has committed everything.
    pub(crate) async fn until_settled(&self) {
        let consumer: BaseConsumer =
            client(&self.brokers).set("group.id", &self.group).create().unwrap();
        let ends = self.ends(&consumer);
        until("all records are committed", async || {
            let mut wanted = TopicPartitionList::new();
            for (partition, _) in &ends {
                wanted.add_partition(&self.name, *partition);
            }
            let committed = consumer.committed_offsets(wanted, PATIENCE).unwrap();
            ends.iter().all(|(partition, end)| {
                let found = committed.find_partition(&self.name, *partition).unwrap().offset();
                *end == 0 || matches!(found, Offset::Offset(offset) if offset >= *end)
            })
        })
        .await;
    }

    fn ends(&self, consumer: &BaseConsumer) -> Vec<(i32, i64)> {
        let end = |partition| consumer.fetch_watermarks(&self.name, partition, PATIENCE).unwrap().1;
        (0..PARTITIONS).map(|partition| (partition, end(partition))).collect()
    }

    /// True if the broker has this topic.
    pub(crate) fn exists(&self, topic: &str) -> bool {
        let consumer: BaseConsumer = client(&self.brokers).create().unwrap();
        let metadata = consumer.fetch_metadata(None, PATIENCE).unwrap();
        metadata.topics().iter().any(|it| it.name() == topic)
    }

    /// The members of the group, and its state.
    pub(crate) fn members(&self) -> (String, Vec<String>) {
        let consumer: BaseConsumer = client(&self.brokers).create().unwrap();
        let groups = consumer.fetch_group_list(Some(&self.group), PATIENCE).unwrap();
        let Some(group) = groups.groups().first() else { return Default::default() };
        let ids = group.members().iter().map(|member| member.id().to_owned()).collect();
        (group.state().to_owned(), ids)
    }

    /// The headers of the first record of a topic with one partition.
    pub(crate) async fn first_headers(&self, topic: &str) -> Vec<(String, String)> {
        let consumer: BaseConsumer = client(&self.brokers).set("group.id", "t").create().unwrap();
        let mut assigned = TopicPartitionList::new();
        assigned.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&assigned).unwrap();
        let record = consumer.poll(PATIENCE).expect("there is a record").unwrap();
        let headers = record.headers().unwrap().iter();
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        headers.map(|header| (header.key.to_owned(), text(header.value))).collect()
    }
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTopic").field("name", &self.name).finish_non_exhaustive()
    }
}
