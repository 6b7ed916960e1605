//! Settings of topics, as the brokers have them.

use std::time::Duration;

use rdkafka::{
    admin::{
        AdminClient, AdminOptions, ConfigResource, NewTopic, OwnedResourceSpecifier,
        ResourceSpecifier, TopicReplication,
    },
    types::RDKafkaErrorCode,
};
use semel_core::{Error, Result};

use crate::{
    client::{Cluster, Reports},
    error,
    poll_thread::blocking,
};

/// How long a request to the controller may take.
const REQUEST: Duration = Duration::from_secs(10);

/// What matters of a topic's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSettings {
    pub(crate) name: String,
    /// How long records are kept. `None`: without limit, or it is not known.
    pub(crate) retention: Option<Duration>,
    /// Earlier records of a key are removed.
    pub(crate) is_compacted: bool,
    /// Old records are removed.
    pub(crate) deletes: bool,
    /// The size beyond which old records are removed.
    pub(crate) retention_bytes: Option<u64>,
    /// False if this user may not read them.
    pub(crate) is_known: bool,
}

/// The settings of these topics. A topic whose settings this user may not read is not an error.
pub(crate) async fn settings_of(
    cluster: &Cluster,
    topics: &[String],
) -> Result<Vec<TopicSettings>> {
    let admin = Admin::new(cluster)?;
    let wanted: Vec<_> = topics.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let described = admin.client()?.describe_configs(&wanted, &options()).await;
    let subject = format!("the topics {}", topics.join(", "));
    let described = described.map_err(|error| admin.reports.explain(&subject, &error))?;
    topics
        .iter()
        .zip(described)
        .map(|(name, described)| match described {
            Ok(resource) => Ok(TopicSettings::read(name, &resource)),
            Err(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                tracing::warn!(
                    topic = name,
                    "kafka: this user may not read the topic's settings (DescribeConfigs)"
                );
                Ok(TopicSettings { name: name.clone(), ..TopicSettings::default() })
            }
            Err(RDKafkaErrorCode::UnknownTopicOrPartition) => Err(error::no_topic(name)),
            Err(code) => Err(error::of_code(&format!("topic {name}"), code)),
        })
        .collect()
}

/// Creates a topic. An existing one is left as it is.
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
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, RDKafkaErrorCode::InvalidReplicationFactor))) => Err(Error::invalid(format!(
            "kafka: {subject} cannot have so many replicas; set ?replicas= to at most the number of brokers"
        ))),
        Some(Err((_, code))) => Err(error::of_code(&subject, code)),
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
    fn read(name: &str, resource: &ConfigResource) -> Self {
        debug_assert_eq!(resource.specifier, OwnedResourceSpecifier::Topic(name.to_owned()));
        let value = |name: &str| resource.get(name).and_then(|entry| entry.value.as_deref());
        let policies = value("cleanup.policy").unwrap_or("delete");
        // -1 is without limit.
        let limit = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok());
        let (is_compacted, deletes) = (policies.contains("compact"), policies.contains("delete"));
        let retention = limit("retention.ms").map(Duration::from_millis);
        Self {
            name: name.to_owned(),
            retention: retention.filter(|_| deletes),
            is_compacted,
            deletes,
            retention_bytes: limit("retention.bytes").filter(|_| deletes),
            is_known: true,
        }
    }
}
