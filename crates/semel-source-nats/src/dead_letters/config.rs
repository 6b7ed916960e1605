//! The builder of dead letters: defaults, options and their limits.

use std::fmt;

use async_nats::Client;
use semel_core::{Error, Finding, Result};

use super::NatsDeadLetters;
use crate::{
    connection::Connector,
    url::{self, NatsUrl, is_name, is_subject, not_understood},
};

const EXAMPLE: &str = "nats://USER:PASSWORD@HOST:4222/STREAM, nats://HOST,HOST/STREAM?subject=SUBJECT&create=true or \
                       nats+tls://HOST/STREAM?ca=FILE";

/// Settings of [`NatsDeadLetters`], made by [`NatsDeadLetters::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect`"]
pub struct NatsDeadLettersBuilder {
    target: Target,
    subject: Option<String>,
    create: Option<bool>,
    replicas: Option<u8>,
    domain: Option<String>,
}

#[derive(Clone)]
enum Target {
    Url(String),
    Client { client: Box<Client>, stream: String },
}

/// The resolved settings.
#[derive(Clone, Debug)]
pub(super) struct DeadLetterSettings {
    pub(super) connector: Connector,
    pub(super) domain: Option<String>,
    pub(super) stream: String,
    pub(super) subject: String,
    pub(super) create: bool,
    /// `None`: three in a cluster.
    pub(super) replicas: Option<u8>,
}

impl NatsDeadLettersBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self::of(Target::Url(url.to_owned()))
    }

    pub(super) fn from_client(client: Client, stream: String) -> Self {
        Self::of(Target::Client { client: Box::new(client), stream })
    }

    fn of(target: Target) -> Self {
        Self { target, subject: None, create: None, replicas: None, domain: None }
    }

    /// The first part of all subjects; by default the name of the stream. In a URL: `?subject=SUBJECT`.
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Creates the stream if it does not exist, on disk, with one message for each subject. A full stream refuses
    /// letters. In a URL: `?create=true`.
    pub fn create(self, create: bool) -> Self {
        Self { create: Some(create), ..self }
    }

    /// The number of replicas of a stream that is created. By default, it has three in a cluster and one without. In a
    /// URL: `?replicas=3`.
    pub fn replicas(self, replicas: u8) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// The JetStream domain. In a URL: `?domain=NAME`.
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// Connects, and looks for the stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting is wrong, or the stream does not exist or
    /// cannot keep letters; [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no JetStream
    /// to connect to.
    pub async fn connect(self) -> Result<NatsDeadLetters> {
        NatsDeadLetters::open(self.settings()?).await
    }

    /// Looks at the stream, and reports what it may lose. Creates nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), except that a stream which connecting would create may be missing.
    pub async fn examine(self) -> Result<Vec<Finding>> {
        NatsDeadLetters::examine(&self.settings()?).await
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.settings().map(drop)
    }

    fn settings(&self) -> Result<DeadLetterSettings> {
        let mut settings = match &self.target {
            Target::Url(url) => of_url(url)?,
            Target::Client { client, stream } => {
                DeadLetterSettings::new(Connector::Client(client.clone()), stream.clone())
            }
        };
        if let Some(subject) = &self.subject {
            settings.subject.clone_from(subject);
        }
        settings.create = self.create.unwrap_or(settings.create);
        settings.replicas = self.replicas.or(settings.replicas);
        settings.domain = self.domain.clone().or(settings.domain);
        settings.check()?;
        Ok(settings)
    }
}

impl DeadLetterSettings {
    fn new(connector: Connector, stream: String) -> Self {
        let subject = stream.clone();
        Self { connector, domain: None, stream, subject, create: false, replicas: None }
    }

    fn check(&self) -> Result<()> {
        let domain = self.domain.as_ref().map(|domain| ("domain", domain));
        for (what, name) in [("stream", &self.stream)].into_iter().chain(domain) {
            if !is_name(name) {
                return Err(Error::invalid(format!(
                    "nats: {name:?} cannot be the name of a {what}: it has to be without spaces, dots, slashes and \
                     wildcards"
                )));
            }
        }
        if !is_subject(&self.subject) || self.subject.starts_with('$') {
            return Err(Error::invalid(format!(
                "nats: {:?} cannot be the subject of dead letters: it has to be without wildcards and not to begin \
                 with $",
                self.subject
            )));
        }
        if self.replicas.is_some_and(|count| !(1..=5).contains(&count)) {
            return Err(Error::invalid("nats: replicas must be from 1 to 5"));
        }
        Ok(())
    }
}

fn of_url(url: &str) -> Result<DeadLetterSettings> {
    let wrong = |why| not_understood(why, EXAMPLE);
    let NatsUrl { address, path, domain, options } = NatsUrl::parse(url, EXAMPLE)?;
    let [stream] =
        <[String; 1]>::try_from(path).map_err(|_| wrong("it does not end in /STREAM"))?;
    let mut settings = DeadLetterSettings::new(Connector::Address(address), stream);
    settings.domain = domain;
    for (name, value) in options {
        match name.as_str() {
            "subject" => settings.subject = value,
            "create" => {
                settings.create =
                    url::flag(&value).ok_or_else(|| wrong("?create= is true or false"))?;
            }
            "replicas" => {
                let count = value.parse().map_err(|_| wrong("?replicas= is 1, 3 or 5"))?;
                settings.replicas = Some(count);
            }
            _ => return Err(wrong("its parameters are subject, create, replicas, domain and ca")),
        }
    }
    Ok(settings)
}

/// Does not print the URL.
impl fmt::Debug for NatsDeadLettersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, create, replicas, .. } = self;
        f.debug_struct("NatsDeadLettersBuilder")
            .field("subject", subject)
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
        let plain = NatsDeadLettersBuilder::new("nats://localhost/DEAD").settings().unwrap();
        assert_eq!((plain.stream.as_str(), plain.subject.as_str()), ("DEAD", "DEAD"));
        assert_eq!((plain.create, plain.replicas), (false, None));
        let new =
            || NatsDeadLettersBuilder::new("nats://h/DEAD?subject=dead.orders&create&replicas=3");
        let settings = new().settings().unwrap();
        assert_eq!(
            (settings.subject.as_str(), settings.create, settings.replicas),
            ("dead.orders", true, Some(3))
        );
        let settings = new().subject("other").create(false).replicas(5).settings().unwrap();
        assert_eq!(
            (settings.subject.as_str(), settings.create, settings.replicas),
            ("other", false, Some(5))
        );
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (word, url) in [
            ("/STREAM", "nats://:canary@a"),
            ("/STREAM", "nats://:canary@a/S/c"),
            ("stream", "nats://:canary@a/S.T"),
            ("subject", "nats://:canary@a/S?subject=a.*"),
            ("subject", "nats://:canary@a/S?subject=$JS.API"),
            ("create", "nats://:canary@a/S?create=yes"),
            ("replicas", "nats://:canary@a/S?replicas=9"),
            ("parameters", "nats://:canary@a/S?nonsense=1"),
        ] {
            let builder = NatsDeadLettersBuilder::new(url);
            let error = builder.validate().unwrap_err();
            assert!(error.to_string().contains(word), "{word}: {error}");
            assert!(!format!("{error:?} {builder:?}").contains("canary"), "{error:?}");
        }
    }
}
