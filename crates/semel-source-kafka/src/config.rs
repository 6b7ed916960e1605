//! The builder of a source: defaults, options and their limits.

use std::{fmt, time::Duration};

use semel_consumer::{ConsumerPlan, ExaminedSource};
use semel_core::{Error, ErrorKind, Result};

use crate::{
    client::Cluster,
    examine,
    message::OrderingKey,
    source::KafkaSource,
    topic::{self, TopicSettings},
    url::{self, KafkaUrl, is_topic, not_understood},
};

const EXAMPLE: &str = "kafka://HOST:9092/TOPIC?group=GROUP, kafka://HOST,HOST/TOPIC,TOPIC?group=GROUP or \
                       kafka+tls://USER:PASSWORD@HOST/TOPIC?group=GROUP&sasl.mechanism=SCRAM-SHA-512";

/// How long a member may not poll if nothing else is set: the driver's default.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(300);

/// How the members of the group share its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The members share them among themselves, with the strategy `cooperative-sticky`. All brokers know it.
    #[default]
    Classic,
    /// The broker shares them (KIP-848): Kafka 4.0 or later.
    Consumer,
}

/// Where a group begins that has committed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the oldest record: nothing is left out.
    #[default]
    Earliest,
    /// Behind the newest record: what was published before is left out, also when committed offsets have expired.
    Latest,
}

/// Settings of a [`KafkaSource`], made by [`KafkaSource::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect`"]
pub struct KafkaSourceBuilder {
    url: String,
    group: Option<String>,
    group_protocol: Option<GroupProtocol>,
    offset_reset: Option<OffsetReset>,
    ordering_key: Option<OrderingKey>,
    window: Option<usize>,
    drain: Option<Duration>,
    redelivery_window: Option<Duration>,
    settings: Vec<(String, String)>,
}

/// The resolved settings of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    pub(crate) cluster: Cluster,
    pub(crate) topics: Vec<String>,
    pub(crate) group: String,
    pub(crate) group_protocol: GroupProtocol,
    pub(crate) offset_reset: OffsetReset,
    pub(crate) ordering_key: OrderingKey,
    pub(crate) window: usize,
    pub(crate) drain: Duration,
    pub(crate) redelivery_window: Option<Duration>,
}

impl KafkaSourceBuilder {
    /// How many records of a partition may come after its committed offset, by default.
    pub const WINDOW: usize = 5_000;
    /// The largest window. What a process that died may have handed over is within it.
    pub const MAX_WINDOW: usize = 10_000;
    /// How long a partition that is revoked waits for its running handlers, by default.
    pub const DRAIN: Duration = Duration::from_secs(5);

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            group: None,
            group_protocol: None,
            offset_reset: None,
            ordering_key: None,
            window: None,
            drain: None,
            redelivery_window: None,
            settings: Vec::new(),
        }
    }

    /// The consumer group. Its members share the partitions, and its committed offsets say what is done. In a URL:
    /// `?group=NAME`.
    pub fn group(self, group: impl Into<String>) -> Self {
        Self { group: Some(group.into()), ..self }
    }

    /// How the members of the group share its partitions. In a URL: `?group-protocol=classic` or `consumer`.
    pub fn group_protocol(self, protocol: GroupProtocol) -> Self {
        Self { group_protocol: Some(protocol), ..self }
    }

    /// Where a group begins that has committed nothing. In a URL: `?offset-reset=earliest` or `latest`.
    pub fn offset_reset(self, reset: OffsetReset) -> Self {
        Self { offset_reset: Some(reset), ..self }
    }

    /// Where the ordering key of a message comes from. In a URL: `?ordering-key=key`, `partition`, `none` or
    /// `header:NAME`.
    pub fn ordering_key(self, ordering_key: OrderingKey) -> Self {
        Self { ordering_key: Some(ordering_key), ..self }
    }

    /// How many records of a partition may come after its committed offset. A partition in which one record is not done
    /// is paused when so many later ones are fetched. In a URL: `?window=5000`.
    pub fn window(self, window: usize) -> Self {
        Self { window: Some(window), ..self }
    }

    /// How long a partition that is revoked waits for its running handlers. The whole group waits for as long. Shorter
    /// than `max.poll.interval.ms` (5 minutes). In a URL: `?drain=5s`.
    pub fn drain(self, drain: Duration) -> Self {
        Self { drain: Some(drain), ..self }
    }

    /// For how long copies of a message can come, if the settings of the topics are not to be read: the user lacks the
    /// right, or the cluster does not serve the request. By default they are read. In a URL: `?redelivery-window=336h`.
    pub fn redelivery_window(self, window: Duration) -> Self {
        Self { redelivery_window: Some(window), ..self }
    }

    /// A setting of librdkafka, such as `sasl.mechanism`. Those that decide whether messages can be lost are refused.
    /// In a URL: `?NAME=VALUE`, for every name with a dot.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Connects, looks for the topics, and joins the group.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting is wrong or a topic does not exist;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when no broker answers.
    pub async fn connect(self) -> Result<KafkaSource> {
        KafkaSource::open(self.settings()?).await
    }

    /// Looks at the topics and the group, and compares the settings with `plan`. Does not join the group, so that its
    /// members keep their partitions; creates and commits nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn examine(self, plan: &ConsumerPlan) -> Result<ExaminedSource> {
        examine::run(&self.settings()?, plan).await
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.settings()?
            .client_config()?
            .create_native_config()
            .map(drop)
            .map_err(|error| crate::error::about("the cluster", &error))
    }

    pub(crate) fn settings(&self) -> Result<SourceSettings> {
        let mut settings = of_url(&self.url)?;
        if let Some(group) = &self.group {
            settings.group.clone_from(group);
        }
        if let Some(ordering_key) = &self.ordering_key {
            settings.ordering_key = ordering_key.clone();
        }
        settings.group_protocol = self.group_protocol.unwrap_or(settings.group_protocol);
        settings.offset_reset = self.offset_reset.unwrap_or(settings.offset_reset);
        settings.window = self.window.unwrap_or(settings.window);
        settings.drain = self.drain.unwrap_or(settings.drain);
        settings.redelivery_window = self.redelivery_window.or(settings.redelivery_window);
        for (name, value) in &self.settings {
            settings.cluster.set(name, value)?;
        }
        settings.check()?;
        Ok(settings)
    }
}

impl SourceSettings {
    fn check(&self) -> Result<()> {
        if let Some(wrong) = self.topics.iter().find(|name| !is_topic(name)) {
            return Err(Error::invalid(format!(
                "kafka: {wrong:?} cannot be the name of a topic: it has letters, digits, dots, hyphens and underscores"
            )));
        }
        if self.group.is_empty() {
            return Err(not_understood("it names no group", EXAMPLE));
        }
        let max_poll = self.cluster.setting("max.poll.interval.ms");
        let max_poll = max_poll.and_then(|it| it.parse().ok());
        let max_poll = max_poll.map_or(MAX_POLL_INTERVAL, Duration::from_millis);
        if self.drain >= max_poll {
            return Err(Error::invalid(format!(
                "kafka: drain is {:?}, and the group expels a member that does not poll for {max_poll:?} \
                 (max.poll.interval.ms): make drain shorter",
                self.drain
            )));
        }
        let windows = 1..=KafkaSourceBuilder::MAX_WINDOW;
        if !windows.contains(&self.window) {
            return Err(Error::invalid(format!(
                "kafka: the window is 1 to {} records",
                KafkaSourceBuilder::MAX_WINDOW
            )));
        }
        Ok(())
    }

    /// The settings of the topics, unless they are given.
    pub(crate) async fn topic_settings(&self) -> Result<Vec<TopicSettings>> {
        if let Some(window) = self.redelivery_window {
            return Ok(self.topics.iter().map(|it| TopicSettings::given(it, window)).collect());
        }
        topic::settings_of(&self.cluster, &self.topics).await.map_err(|error| match error.kind() {
            ErrorKind::Unavailable => crate::error::unavailable(format!(
                "kafka: the cluster does not say how long it keeps the records of {}; try again, or set \
                 redelivery-window",
                self.topics.join(", ")
            ))
            .with_source(error),
            _ => error,
        })
    }

    /// The settings of the consumer for librdkafka.
    pub(crate) fn client_config(&self) -> Result<rdkafka::ClientConfig> {
        let mut config = self.cluster.client_config()?;
        let reset = match self.offset_reset {
            OffsetReset::Earliest => "earliest",
            OffsetReset::Latest => "latest",
        };
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "false");
        let mut default = |name: &str, value: &str| {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        };
        default("auto.offset.reset", reset);
        default("isolation.level", "read_committed");
        match self.group_protocol {
            GroupProtocol::Classic => {
                default("partition.assignment.strategy", "cooperative-sticky");
            }
            GroupProtocol::Consumer => {
                config.set("group.protocol", "consumer");
            }
        }
        Ok(config)
    }
}

fn of_url(url: &str) -> Result<SourceSettings> {
    let wrong = |why| not_understood(why, EXAMPLE);
    let KafkaUrl { address, path, options } = KafkaUrl::parse(url, EXAMPLE)?;
    let [topics] = <[String; 1]>::try_from(path).map_err(|_| wrong("it does not end in /TOPIC"))?;
    let mut settings = SourceSettings {
        cluster: Cluster::new(address),
        topics: topics.split(',').map(str::to_owned).collect(),
        group: String::new(),
        group_protocol: GroupProtocol::default(),
        offset_reset: OffsetReset::default(),
        ordering_key: OrderingKey::default(),
        window: KafkaSourceBuilder::WINDOW,
        drain: KafkaSourceBuilder::DRAIN,
        redelivery_window: None,
    };
    for (name, value) in options {
        match name.as_str() {
            "group" => settings.group = value,
            "group-protocol" => {
                settings.group_protocol = match value.as_str() {
                    "classic" => GroupProtocol::Classic,
                    "consumer" => GroupProtocol::Consumer,
                    _ => return Err(wrong("?group-protocol= is classic or consumer")),
                };
            }
            "offset-reset" => {
                settings.offset_reset = match value.as_str() {
                    "earliest" => OffsetReset::Earliest,
                    "latest" => OffsetReset::Latest,
                    _ => return Err(wrong("?offset-reset= is earliest or latest")),
                };
            }
            "ordering-key" => {
                settings.ordering_key = OrderingKey::of_option(&value).ok_or_else(|| {
                    wrong("?ordering-key= is key, partition, none or header:NAME")
                })?;
            }
            "window" => {
                let window = value.parse().map_err(|_| wrong("?window= is a number of records"))?;
                settings.window = window;
            }
            "drain" => {
                settings.drain =
                    url::duration(&value).ok_or_else(|| wrong("?drain= is like 5s"))?;
            }
            "redelivery-window" => {
                let window = url::duration(&value);
                let window = window.ok_or_else(|| wrong("?redelivery-window= is like 336h"))?;
                settings.redelivery_window = Some(window);
            }
            _ => {
                return Err(wrong(
                    "its parameters are group, group-protocol, offset-reset, ordering-key, window, drain, \
                     redelivery-window, ca, and settings of librdkafka, which have a dot in their names",
                ));
            }
        }
    }
    Ok(settings)
}

/// Prints no login.
impl fmt::Debug for KafkaSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceBuilder").field("group", &self.group).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_lose_nothing() {
        let settings = KafkaSourceBuilder::new("kafka://h/orders?group=g").settings().unwrap();
        let config = settings.client_config().unwrap();
        for (name, value) in [
            ("bootstrap.servers", "h:9092"),
            ("group.id", "g"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("partition.assignment.strategy", "cooperative-sticky"),
        ] {
            assert_eq!(config.get(name), Some(value), "{name}");
        }
        assert_eq!((settings.window, settings.drain), (5_000, Duration::from_secs(5)));
    }

    #[test]
    fn a_url_sets_what_the_builder_sets() {
        let url = "kafka://h/a,b?group=g&group-protocol=consumer&offset-reset=latest&ordering-key=header:Tenant\
                   &window=7&drain=250ms&redelivery-window=2h&session.timeout.ms=9000";
        let settings = KafkaSourceBuilder::new(url).settings().unwrap();
        assert_eq!(settings.topics, ["a", "b"]);
        assert_eq!(settings.ordering_key, OrderingKey::Header("Tenant".to_owned()));
        assert_eq!((settings.window, settings.drain), (7, Duration::from_millis(250)));
        assert_eq!(settings.redelivery_window, Some(Duration::from_secs(7200)));
        let config = settings.client_config().unwrap();
        assert_eq!(config.get("group.protocol"), Some("consumer"));
        assert_eq!(config.get("partition.assignment.strategy"), None);
        assert_eq!(config.get("auto.offset.reset"), Some("latest"));
        assert_eq!(config.get("session.timeout.ms"), Some("9000"));
        let builder = KafkaSourceBuilder::new("kafka://h/a").group("other").window(9);
        assert_eq!(builder.settings().unwrap().group, "other");
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_fix() {
        for (url, word) in [
            ("kafka://u:canary@h", "/TOPIC"),
            ("kafka://u:canary@h/a/b?group=g", "/TOPIC"),
            ("kafka://u:canary@h/a", "group"),
            ("kafka://u:canary@h/a%20b?group=g", "name of a topic"),
            ("kafka://u:canary@h/a?group=g&window=0", "1 to 10000"),
            ("kafka://u:canary@h/a?group=g&window=x", "?window="),
            ("kafka://u:canary@h/a?group=g&drain=5", "?drain="),
            ("kafka://u:canary@h/a?group=g&drain=5m", "max.poll.interval.ms"),
            ("kafka://u:canary@h/a?group=g&drain=5s&max.poll.interval.ms=4000", "make drain"),
            ("kafka://u:canary@h/a?group=g&redelivery-window=5", "?redelivery-window="),
            ("kafka://u:canary@h/a?group=g&canary=5", "its parameters are"),
            ("kafka://u:canary@h/a?group=g&group-protocol=new", "?group-protocol="),
            ("kafka://u:canary@h/a?group=g&no.such.setting=canary", "no.such.setting"),
        ] {
            let builder = KafkaSourceBuilder::new(url);
            let error = builder.validate().unwrap_err();
            assert!(error.to_string().contains(word), "{word}: {error}");
            assert!(!format!("{error:?} {builder:?}").contains("canary"), "{error:?}");
        }
        let refused = KafkaSourceBuilder::new("kafka://h/a?group=g").setting("acks", "0");
        assert!(refused.validate().unwrap_err().to_string().contains("acks"));
    }
}
