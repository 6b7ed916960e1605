//! The builder of dead letters: defaults, options and their limits.

use std::fmt;

use semel_core::{Error, Finding, Result};

use super::KafkaDeadLetters;
use crate::{
    client::Cluster,
    url::{self, KafkaUrl, is_topic, not_understood},
};

const EXAMPLE: &str = "kafka://HOST:9092/TOPIC, kafka://HOST,HOST/TOPIC?create=true or \
                       kafka+tls://USER:PASSWORD@HOST/TOPIC";

/// Settings of [`KafkaDeadLetters`], made by [`KafkaDeadLetters::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect`"]
pub struct KafkaDeadLettersBuilder {
    url: String,
    create: Option<bool>,
    replicas: Option<i32>,
}

/// The resolved settings.
#[derive(Clone, Debug)]
pub(super) struct DeadLetterSettings {
    pub(super) cluster: Cluster,
    pub(super) topic: String,
    pub(super) create: bool,
    /// `None`: as many as the brokers give a topic.
    pub(super) replicas: Option<i32>,
}

impl KafkaDeadLettersBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), create: None, replicas: None }
    }

    /// Creates the topic if it does not exist: one partition, and records are kept without limit. In a URL:
    /// `?create=true`.
    pub fn create(self, create: bool) -> Self {
        Self { create: Some(create), ..self }
    }

    /// The number of replicas of a topic that is created. In a URL: `?replicas=3`.
    pub fn replicas(self, replicas: i32) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// Connects, and looks for the topic.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting is wrong, or the topic does not exist or
    /// cannot keep letters; [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when no broker answers.
    pub async fn connect(self) -> Result<KafkaDeadLetters> {
        KafkaDeadLetters::open(self.settings()?).await
    }

    /// Looks at the topic, and reports what it may lose. Creates nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), except that a topic which connecting would create may be missing.
    pub async fn examine(self) -> Result<Vec<Finding>> {
        KafkaDeadLetters::examine(&self.settings()?).await
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        let config = self.settings()?.cluster.client_config()?;
        let checked = config.create_native_config().map(drop);
        checked.map_err(|error| crate::error::about("the cluster", &error))
    }

    fn settings(&self) -> Result<DeadLetterSettings> {
        let mut settings = of_url(&self.url)?;
        settings.create = self.create.unwrap_or(settings.create);
        settings.replicas = self.replicas.or(settings.replicas);
        if !is_topic(&settings.topic) {
            return Err(Error::invalid(format!(
                "kafka: {:?} cannot be the name of a topic: it has letters, digits, dots, hyphens and underscores",
                settings.topic
            )));
        }
        if settings.replicas.is_some_and(|count| count < 1) {
            return Err(Error::invalid("kafka: replicas must be 1 or more"));
        }
        Ok(settings)
    }
}

fn of_url(url: &str) -> Result<DeadLetterSettings> {
    let wrong = |why| not_understood(why, EXAMPLE);
    let KafkaUrl { address, path, options } = KafkaUrl::parse(url, EXAMPLE)?;
    let [topic] = <[String; 1]>::try_from(path).map_err(|_| wrong("it does not end in /TOPIC"))?;
    let cluster = Cluster::new(address);
    let mut settings = DeadLetterSettings { cluster, topic, create: false, replicas: None };
    for (name, value) in options {
        match name.as_str() {
            "create" => {
                settings.create =
                    url::flag(&value).ok_or_else(|| wrong("?create= is true or false"))?;
            }
            "replicas" => {
                let count = value.parse().map_err(|_| wrong("?replicas= is 1, 3 or 5"))?;
                settings.replicas = Some(count);
            }
            _ => {
                return Err(wrong(
                    "its parameters are create, replicas, ca, and settings of librdkafka, which have a dot in their \
                     names",
                ));
            }
        }
    }
    Ok(settings)
}

/// Does not print the URL.
impl fmt::Debug for KafkaDeadLettersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { create, replicas, .. } = self;
        f.debug_struct("KafkaDeadLettersBuilder")
            .field("create", create)
            .field("replicas", replicas)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builder_overrides_the_url() {
        let new = || KafkaDeadLettersBuilder::new("kafka://h/dead?create&replicas=3");
        let settings = new().settings().unwrap();
        assert_eq!(
            (settings.topic.as_str(), settings.create, settings.replicas),
            ("dead", true, Some(3))
        );
        let settings = new().create(false).replicas(1).settings().unwrap();
        assert_eq!((settings.create, settings.replicas), (false, Some(1)));
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (word, url) in [
            ("/TOPIC", "kafka://u:canary@a"),
            ("/TOPIC", "kafka://u:canary@a/t/u"),
            ("name of a topic", "kafka://u:canary@a/a%20b"),
            ("create", "kafka://u:canary@a/t?create=yes"),
            ("replicas", "kafka://u:canary@a/t?replicas=0"),
            ("parameters", "kafka://u:canary@a/t?nonsense=1"),
            ("no.setting", "kafka://u:canary@a/t?no.setting=1"),
        ] {
            let builder = KafkaDeadLettersBuilder::new(url);
            let error = builder.validate().unwrap_err();
            assert!(error.to_string().contains(word), "{word}: {error}");
            assert!(!format!("{error:?} {builder:?}").contains("canary"), "{error:?}");
        }
    }
}
