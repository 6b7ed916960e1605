//! Settings of topics, as the brokers have them.

use std::time::Duration;

use rdkafka::{
    admin::{
        AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
    },
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    metadata::MetadataPartition,
    types::RDKafkaErrorCode,
};
use semel_core::{Error, Result};
use tokio::time::{Instant, sleep};

use crate::{
    client::{Cluster, Reports},
    error,
    poll_thread::blocking,
};

/// How long a request to the controller may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);

/// The pause between two looks for a topic that was created.
const UNTIL_KNOWN: Duration = Duration::from_millis(50);

/// Events of the driver that are looked at for the reason of a failed request.
const EVENTS: usize = 100;

/// `segment.ms` of a topic that does not say otherwise: seven days.
const DEFAULT_SEGMENT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What matters of a topic's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSettings {
    pub(crate) name: String,
    /// How long the newest record of a segment is kept. `None`: without limit, or it is not known.
    pub(crate) retention: Option<Duration>,
    /// How long a segment takes records.
    pub(crate) segment: Duration,
    /// Earlier records of a key are removed.
    pub(crate) is_compacted: bool,
    /// The size beyond which old records are removed.
    pub(crate) retention_bytes: Option<u64>,
    /// False if this user may not read them.
    pub(crate) is_known: bool,
    /// They were not read: the retention is what the operator says.
    pub(crate) is_given: bool,
}

/// The settings of these topics. A topic that does not exist, or whose settings this user may not read, is not an error:
/// the driver does not tell.
pub(crate) async fn settings_of(
    cluster: &Cluster,
    topics: &[String],
) -> Result<Vec<TopicSettings>> {
    let admin = Admin::new(cluster)?;
    let wanted: Vec<_> = topics.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let described = admin.client()?.describe_configs(&wanted, &options).await;
    let subject = format!("the topics {}", topics.join(", "));
    match described {
        Ok(described) => {
            let all = topics.iter().zip(described);
            Ok(all.map(|(name, it)| TopicSettings::read(name, it.as_ref().ok())).collect())
        }
        Err(error) if is_not_served(&error) => {
            Ok(topics.iter().map(|name| TopicSettings::read(name, None)).collect())
        }
        Err(error) => Err(admin.reports.explain(&subject, &error)),
    }
}

/// True if the cluster does not know the request. Not if it does not answer: without the retention of a topic, outcomes
/// would be kept for a day only, so the source must not open in an outage as if there were none.
fn is_not_served(error: &KafkaError) -> bool {
    matches!(
        error::code(error),
        Some(RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion)
    )
}

/// How many partitions a topic has. Blocks.
pub(crate) fn partitions<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    reports: &Reports,
    topic: &str,
) -> Result<Vec<i32>> {
    let subject = format!("topic {topic}");
    let metadata = consumer.fetch_metadata(Some(topic), REQUEST);
    if metadata.is_err() {
        // The driver reports why no broker answers, one event for each poll. This consumer fetches nothing yet.
        (0..EVENTS).for_each(|_| drop(consumer.poll(Duration::ZERO)));
    }
    let metadata = metadata.map_err(|error| reports.explain(&subject, &error))?;
    let found = metadata.topics().iter().find(|it| it.name() == topic);
    let found = found.ok_or_else(|| error::no_topic(topic))?;
    match found.error().map(RDKafkaErrorCode::from) {
        None => Ok(found.partitions().iter().map(MetadataPartition::id).collect()),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            Err(error::no_topic(topic))
        }
        Some(code) => Err(error::of_code(&subject, code)),
    }
}

/// Fails if a topic does not exist.
pub(crate) async fn find(cluster: &Cluster, topic: &str) -> Result<()> {
    let (config, topic) = (cluster.client_config()?, topic.to_owned());
    blocking(move || {
        let reports = Reports::default();
        // A consumer: a producer would make the topic, if the brokers allow that.
        let created = config.create_with_context(reports.clone());
        let consumer: BaseConsumer<Reports> =
            created.map_err(|failed| error::about("the cluster", &failed))?;
        partitions(&consumer, &reports, &topic).map(drop)
    })
    .await
}

/// Creates a topic, and returns when the brokers know it. An existing one is left as it is.
pub(crate) async fn create(
    cluster: &Cluster,
    name: &str,
    replicas: Option<i32>,
    settings: &[(&str, &str)],
) -> Result<()> {
    let admin = Admin::new(cluster)?;
    // -1: as the brokers are configured.
    let new = NewTopic::new(name, 1, TopicReplication::Fixed(replicas.unwrap_or(-1)));
    let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
    let created = admin.client()?.create_topics([&new], &options()).await;
    let subject = format!("topic {name}");
    let created = created.map_err(|error| admin.reports.explain(&subject, &error))?;
    match created.into_iter().next() {
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
            until_known(cluster, name).await
        }
        Some(Err((_, RDKafkaErrorCode::InvalidReplicationFactor))) => Err(Error::invalid(format!(
            "kafka: {subject} cannot have so many replicas; set ?replicas= to at most the number of brokers"
        ))),
        Some(Err((_, code))) => Err(error::of_code(&subject, code)),
    }
}

/// The controller confirms a new topic before the brokers know it.
async fn until_known(cluster: &Cluster, topic: &str) -> Result<()> {
    let created_at = Instant::now();
    loop {
        match find(cluster, topic).await {
            Err(error) if error::is_missing(&error) && created_at.elapsed() < REQUEST => {
                sleep(UNTIL_KNOWN).await;
            }
            found => return found,
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(REQUEST))
}

/// A client for the controller. It is dropped on a thread of its own, because that blocks.
struct Admin {
    client: Option<AdminClient<Reports>>,
    reports: Reports,
}

impl Admin {
    fn new(cluster: &Cluster) -> Result<Self> {
        let reports = Reports::default();
        let created = cluster.client_config()?.create_with_context(reports.clone());
        let client = created.map_err(|error| error::about("the cluster", &error))?;
        Ok(Self { client: Some(client), reports })
    }

    fn client(&self) -> Result<&AdminClient<Reports>> {
        self.client.as_ref().ok_or_else(error::closed)
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let client = self.client.take();
        drop_elsewhere(client);
    }
}

/// Drops what blocks while it is dropped, on another thread.
pub(crate) fn drop_elsewhere<T: Send + 'static>(client: T) {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => drop(tokio::spawn(blocking(move || {
            drop(client);
            Ok(())
        }))),
        // Outside of a runtime nothing else waits for this thread.
        Err(_) => drop(client),
    }
}

impl TopicSettings {
    /// Without a resource, or with an empty one, nothing is known.
    fn read(name: &str, resource: Option<&ConfigResource>) -> Self {
        let Some(resource) = resource.filter(|it| !it.entries.is_empty()) else {
            return Self { name: name.to_owned(), ..Self::default() };
        };
        let value = |name: &str| resource.get(name).and_then(|entry| entry.value.as_deref());
        let policies = value("cleanup.policy").unwrap_or("delete");
        // -1 is without limit.
        let limit = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok());
        let (is_compacted, deletes) = (policies.contains("compact"), policies.contains("delete"));
        let millis = |name: &str| limit(name).map(Duration::from_millis);
        Self {
            name: name.to_owned(),
            retention: millis("retention.ms").filter(|_| deletes),
            segment: millis("segment.ms").unwrap_or(DEFAULT_SEGMENT),
            is_compacted,
            retention_bytes: limit("retention.bytes").filter(|_| deletes),
            is_known: true,
            is_given: false,
        }
    }

    /// How long a record is kept at most. Kafka removes whole segments, when the newest record of a segment is old enough.
    /// The oldest one stays for as much longer as the segment takes records.
    pub(crate) fn redelivery_window(&self) -> Option<Duration> {
        Some(self.retention?.saturating_add(self.segment))
    }

    /// The settings of a topic that are not read.
    pub(crate) fn given(name: &str, retention: Duration) -> Self {
        Self {
            name: name.to_owned(),
            retention: Some(retention),
            is_known: true,
            is_given: true,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::admin::{ConfigEntry, ConfigSource, OwnedResourceSpecifier};

    use super::*;

    fn read(entries: &[(&str, &str)]) -> TopicSettings {
        let entry = |(name, value): &(&str, &str)| ConfigEntry {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
            source: ConfigSource::DynamicTopic,
            is_read_only: false,
            is_default: false,
            is_sensitive: false,
        };
        let specifier = OwnedResourceSpecifier::Topic("orders".to_owned());
        let entries = entries.iter().map(entry).collect();
        TopicSettings::read("orders", Some(&ConfigResource { specifier, entries }))
    }

    #[test]
    fn a_silent_cluster_is_not_one_without_settings() {
        let is_not_served = |code| is_not_served(&KafkaError::AdminOp(code));
        assert!(is_not_served(RDKafkaErrorCode::UnsupportedFeature));
        assert!(is_not_served(RDKafkaErrorCode::UnsupportedVersion));
        for code in [
            RDKafkaErrorCode::OperationTimedOut,
            RDKafkaErrorCode::BrokerTransportFailure,
            RDKafkaErrorCode::AllBrokersDown,
        ] {
            assert!(!is_not_served(code), "{code}");
        }
    }

    #[test]
    fn the_first_record_of_a_segment_is_kept_until_the_last_one_is_old() {
        fn window(entries: &[(&str, &str)]) -> Option<u128> {
            read(entries).redelivery_window().map(|it| it.as_millis())
        }
        let (hour, minute) = (("retention.ms", "3600000"), ("segment.ms", "60000"));
        assert_eq!(window(&[hour, minute]), Some(3_660_000));
        assert_eq!(window(&[hour]), Some(3_600_000 + 7 * 24 * 3_600_000));
        assert_eq!(window(&[("retention.ms", "-1"), minute]), None);
        assert_eq!(window(&[hour, minute, ("cleanup.policy", "compact")]), None);
        assert_eq!(window(&[hour, minute, ("cleanup.policy", "compact,delete")]), Some(3_660_000));
    }
}
