//! The builder of a source: defaults, options and their limits.

use std::{fmt, time::Duration};

use async_nats::Client;
use semel_consumer::{ConsumerPlan, ExaminedSource};
use semel_core::{Error, Result};

use crate::{
    connection::Connector,
    message::OrderingKey,
    settlement::Acks,
    source::NatsSource,
    url::{self, NatsUrl, is_name, is_subject, not_understood},
};

const EXAMPLE: &str = "nats://USER:PASSWORD@HOST:4222/STREAM/CONSUMER, nats://HOST,HOST/STREAM/CONSUMER?create=true \
                       or nats+tls://HOST/STREAM/CONSUMER?ca=FILE";

/// Settings of a [`NatsSource`], made by [`NatsSource::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect`"]
pub struct NatsSourceBuilder {
    target: Target,
    create: Option<bool>,
    filter_subjects: Vec<String>,
    ack_wait: Option<Duration>,
    ordering_key: Option<OrderingKey>,
    acks: Acks,
    domain: Option<String>,
}

#[derive(Clone)]
enum Target {
    Url(String),
    Client { client: Box<Client>, stream: String, consumer: String },
}

/// The resolved settings of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    pub(crate) connector: Connector,
    pub(crate) domain: Option<String>,
    pub(crate) stream: String,
    pub(crate) consumer: String,
    pub(crate) create: bool,
    pub(crate) filter_subjects: Vec<String>,
    pub(crate) ack_wait: Option<Duration>,
    pub(crate) ordering_key: OrderingKey,
    pub(crate) acks: Acks,
}

impl NatsSourceBuilder {
    /// The acknowledgement deadline of a consumer that is created.
    pub const ACK_WAIT: Duration = Duration::from_secs(30);
    /// The shortest acknowledgement deadline that can be asked for.
    pub const MIN_ACK_WAIT: Duration = Duration::from_secs(1);

    pub(crate) fn new(url: &str) -> Self {
        Self::of(Target::Url(url.to_owned()))
    }

    pub(crate) fn from_client(client: Client, stream: String, consumer: String) -> Self {
        Self::of(Target::Client { client: Box::new(client), stream, consumer })
    }

    fn of(target: Target) -> Self {
        Self {
            target,
            create: None,
            filter_subjects: Vec::new(),
            ack_wait: None,
            ordering_key: None,
            acks: Acks::Confirmed,
            domain: None,
        }
    }

    /// Creates the consumer if it does not exist: durable, with explicit acknowledgement and an unlimited
    /// `max_deliver`, beginning at the first message of the stream. The stream must exist. In a URL: `?create=true`.
    pub fn create(self, create: bool) -> Self {
        Self { create: Some(create), ..self }
    }

    /// The subjects of a consumer that is created; all subjects of the stream if there are none. Wildcards are allowed.
    /// In a URL: `?filter=SUBJECT`, which may be repeated.
    pub fn filter_subjects<S: Into<String>>(self, subjects: impl IntoIterator<Item = S>) -> Self {
        Self { filter_subjects: subjects.into_iter().map(Into::into).collect(), ..self }
    }

    /// The acknowledgement deadline of a consumer that is created. In a URL: `?ack-wait=30s`.
    pub fn ack_wait(self, ack_wait: Duration) -> Self {
        Self { ack_wait: Some(ack_wait), ..self }
    }

    /// Where the ordering key of a message comes from. In a URL: `?ordering-key=producer`, `subject`, `none` or
    /// `header:NAME`.
    pub fn ordering_key(self, ordering_key: OrderingKey) -> Self {
        Self { ordering_key: Some(ordering_key), ..self }
    }

    /// Whether a settlement waits until the server has confirmed it, which is the default. Without it, an
    /// acknowledgement that gets lost is noticed only when the message comes again, as a duplicate.
    pub fn confirm_acks(self, confirm_acks: bool) -> Self {
        Self { acks: if confirm_acks { Acks::Confirmed } else { Acks::Unconfirmed }, ..self }
    }

    /// The JetStream domain. In a URL: `?domain=NAME`.
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// Connects, and looks for stream and consumer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting is wrong, the stream or the consumer does
    /// not exist, or the consumer is not one that can be pulled from;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no JetStream to connect to.
    pub async fn connect(self) -> Result<NatsSource> {
        NatsSource::open(self.settings()?).await
    }

    /// Looks at stream and consumer, and compares their settings with `plan`. Receives and creates nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), except that a consumer which connecting would create may be missing.
    pub async fn examine(self, plan: &ConsumerPlan) -> Result<ExaminedSource> {
        NatsSource::examine(self.settings()?, plan).await
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.settings().map(drop)
    }

    pub(crate) fn settings(&self) -> Result<SourceSettings> {
        let mut settings = match &self.target {
            Target::Url(url) => of_url(url)?,
            Target::Client { client, stream, consumer } => SourceSettings::new(
                Connector::Client(client.clone()),
                stream.clone(),
                consumer.clone(),
            ),
        };
        settings.create = self.create.unwrap_or(settings.create);
        if !self.filter_subjects.is_empty() {
            settings.filter_subjects.clone_from(&self.filter_subjects);
        }
        settings.ack_wait = self.ack_wait.or(settings.ack_wait);
        if let Some(ordering_key) = &self.ordering_key {
            settings.ordering_key = ordering_key.clone();
        }
        settings.acks = self.acks;
        settings.domain = self.domain.clone().or(settings.domain);
        settings.check()?;
        Ok(settings)
    }
}

impl SourceSettings {
    fn new(connector: Connector, stream: String, consumer: String) -> Self {
        Self {
            connector,
            domain: None,
            stream,
            consumer,
            create: false,
            filter_subjects: Vec::new(),
            ack_wait: None,
            ordering_key: OrderingKey::default(),
            acks: Acks::Confirmed,
        }
    }

    fn check(&self) -> Result<()> {
        let domain = self.domain.as_ref().map(|domain| ("domain", domain));
        let names = [("stream", &self.stream), ("consumer", &self.consumer)];
        for (what, name) in names.into_iter().chain(domain) {
            if !is_name(name) {
                return Err(Error::invalid(format!(
                    "nats: {name:?} cannot be the name of a {what}: it has to be without spaces, dots, slashes and \
                     wildcards"
                )));
            }
        }
        let is_filter = |filter: &String| is_subject(&filter.replace(['*', '>'], "x"));
        if let Some(wrong) = self.filter_subjects.iter().find(|filter| !is_filter(filter)) {
            return Err(Error::invalid(format!("nats: the filter {wrong:?} is no subject")));
        }
        if self.ack_wait.is_some_and(|wait| wait < NatsSourceBuilder::MIN_ACK_WAIT) {
            return Err(Error::invalid("nats: ack_wait must be at least a second"));
        }
        Ok(())
    }
}

fn of_url(url: &str) -> Result<SourceSettings> {
    let wrong = |why| not_understood(why, EXAMPLE);
    let NatsUrl { address, path, domain, options } = NatsUrl::parse(url, EXAMPLE)?;
    let [stream, consumer] =
        <[String; 2]>::try_from(path).map_err(|_| wrong("it does not end in /STREAM/CONSUMER"))?;
    let mut settings = SourceSettings::new(Connector::Address(address), stream, consumer);
    settings.domain = domain;
    for (name, value) in options {
        match name.as_str() {
            "create" => {
                settings.create =
                    url::flag(&value).ok_or_else(|| wrong("?create= is true or false"))?;
            }
            "filter" => settings.filter_subjects.push(value),
            "ack-wait" => {
                let wait = url::duration(&value).ok_or_else(|| wrong("?ack-wait= is like 30s"))?;
                settings.ack_wait = Some(wait);
            }
            "ordering-key" => {
                settings.ordering_key = ordering_key(&value).ok_or_else(|| {
                    wrong("?ordering-key= is producer, subject, none or header:NAME")
                })?;
            }
            _ => {
                return Err(wrong(
                    "its parameters are create, filter, ack-wait, ordering-key, domain and ca",
                ));
            }
        }
    }
    Ok(settings)
}

fn ordering_key(value: &str) -> Option<OrderingKey> {
    match value {
        "producer" => Some(OrderingKey::Producer),
        "subject" => Some(OrderingKey::Subject),
        "none" => Some(OrderingKey::None),
        _ => {
            let name = value.strip_prefix("header:").filter(|name| !name.is_empty())?;
            Some(OrderingKey::Header(name.to_owned()))
        }
    }
}

/// Does not print the URL.
impl fmt::Debug for NatsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { create, filter_subjects, ack_wait, ordering_key, acks, .. } = self;
        f.debug_struct("NatsSourceBuilder")
            .field("create", create)
            .field("filter_subjects", filter_subjects)
            .field("ack_wait", ack_wait)
            .field("ordering_key", ordering_key)
            .field("acks", acks)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_published_ones() {
        let settings =
            NatsSourceBuilder::new("nats://localhost/ORDERS/billing").settings().unwrap();
        assert_eq!((settings.stream.as_str(), settings.consumer.as_str()), ("ORDERS", "billing"));
        assert_eq!((settings.create, settings.ack_wait), (false, None));
        assert_eq!(settings.ordering_key, OrderingKey::Producer);
        assert_eq!(settings.acks, Acks::Confirmed);
        assert_eq!(NatsSourceBuilder::ACK_WAIT, Duration::from_secs(30));
        assert_eq!(NatsSourceBuilder::MIN_ACK_WAIT, Duration::from_secs(1));
    }

    #[test]
    fn the_builder_overrides_the_url() {
        let url = "nats://a/S/c?create&filter=a.*&filter=b.%3E&ack-wait=5s&ordering-key=header:Tenant&domain=hub";
        let new = || NatsSourceBuilder::new(url);
        let settings = new().settings().unwrap();
        assert!(settings.create);
        assert_eq!(settings.filter_subjects, ["a.*", "b.>"]);
        assert_eq!(settings.ack_wait, Some(Duration::from_secs(5)));
        assert_eq!(settings.ordering_key, OrderingKey::Header("Tenant".into()));
        assert_eq!(settings.domain.as_deref(), Some("hub"));
        let builder = new().create(false).filter_subjects(["c"]).ack_wait(Duration::from_secs(9));
        let settings = builder.ordering_key(OrderingKey::None).settings().unwrap();
        assert_eq!((settings.create, settings.filter_subjects), (false, vec!["c".to_owned()]));
        assert_eq!(
            (settings.ack_wait, settings.ordering_key),
            (Some(Duration::from_secs(9)), OrderingKey::None)
        );
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (word, url) in [
            ("/STREAM/CONSUMER", "nats://:canary@a/S"),
            ("/STREAM/CONSUMER", "nats://:canary@a/S/c/x"),
            ("stream", "nats://:canary@a/S%20S/c"),
            ("consumer", "nats://:canary@a/S/c.d"),
            ("domain", "nats://:canary@a/S/c?domain=a.b"),
            ("create", "nats://:canary@a/S/c?create=maybe"),
            ("ack-wait", "nats://:canary@a/S/c?ack-wait=5"),
            ("ack_wait", "nats://:canary@a/S/c?ack-wait=5ms"),
            ("ordering-key", "nats://:canary@a/S/c?ordering-key=header:"),
            ("filter", "nats://:canary@a/S/c?filter=a..b"),
            ("parameters", "nats://:canary@a/S/c?nonsense=1"),
        ] {
            let builder = NatsSourceBuilder::new(url);
            let error = builder.validate().unwrap_err();
            assert!(error.to_string().contains(word), "{word}: {error}");
            assert!(!format!("{error:?} {builder:?}").contains("canary"), "{error:?}");
        }
    }
}
