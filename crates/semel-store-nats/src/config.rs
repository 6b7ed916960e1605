//! The builder of a store: defaults, options and their limits.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result};
use semel_remote::run_in_background;

use crate::{
    NatsStore, connection::LostConnections, names::NatsNames, settings::NatsSettings, url::NatsUrl,
};

const CANCELLED: &str = "nats: opening the store was cancelled";

/// Settings of a [`NatsStore`], made by [`NatsStore::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect` or `checks`"]
pub struct NatsStoreBuilder {
    url: String,
    prefix: String,
    call_timeout: Duration,
    replicas: Option<u8>,
    old_server: Option<Duration>,
    secret: Option<HashSecret>,
    skip_setup: bool,
}

impl NatsStoreBuilder {
    /// The default prefix of all keys.
    pub const PREFIX: &str = "semel";
    /// How long a call may take. If a reply is lost, the key is read within this time.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest call timeout: an index entry is kept much longer than any call lasts.
    pub const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(20);
    /// The shortest age after which an old server may forget everything.
    pub const MIN_OLD_SERVER_AGE: Duration = Duration::from_secs(60);

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: Self::PREFIX.to_owned(),
            call_timeout: Self::CALL_TIMEOUT,
            replicas: None,
            old_server: None,
            secret: None,
            skip_setup: false,
        }
    }

    /// The prefix of all keys. Stores with different prefixes share nothing.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a call may take. If a reply is lost, the key is read within this time.
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// The number of replicas that the bucket must have, and with which it is made. By default, any number is accepted,
    /// and a new bucket has three in a cluster and one without.
    pub fn replicas(self, replicas: u8) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// Accepts a server before 2.11, which has no per-key TTL: its bucket forgets every record after `max_age`,
    /// including those that are Unknown or on hold. A record is never used after its retention.
    pub fn old_server(self, max_age: Duration) -> Self {
        Self { old_server: Some(max_age), ..self }
    }

    /// The secret that keys are hashed with. It must be the same in all processes on one prefix.
    pub fn hash_secret(self, secret: HashSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Makes no missing bucket, and does not write the hash secret if no process has written it. For a process that
    /// claims no keys, such as an operator's command.
    pub fn skip_setup(self, skip_setup: bool) -> Self {
        Self { skip_setup, ..self }
    }

    /// Connects, makes the bucket if there is none, and checks that it can keep the store's promises.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting, the server or the bucket is
    /// wrong, or other processes hash keys with another secret;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no JetStream to connect to.
    pub async fn connect(self) -> Result<NatsStore> {
        let settings = Arc::new(self.settings()?);
        run_in_background(NatsStore::open(settings, self.secret), CANCELLED).await?
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.settings().map(drop)
    }

    /// Checks server, bucket and hash secret, without writing, and reports what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for invalid settings: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let settings = Arc::new(self.settings()?);
        run_in_background(async move { settings.findings().await }, CANCELLED).await
    }

    fn settings(&self) -> Result<NatsSettings> {
        let url = NatsUrl::parse(&self.url)?;
        let settings = NatsSettings {
            names: NatsNames::new(&url.bucket, &self.prefix)?,
            secret_check: HashSecret::check_value(self.secret.as_ref()),
            skip_setup: self.skip_setup,
            call_timeout: self.call_timeout,
            replicas: self.replicas.or(url.replicas),
            old_server: self.old_server.or(url.old_server),
            lost_connections: LostConnections::default(),
            url,
        };
        Self::check(&settings)?;
        Ok(settings)
    }

    fn check(settings: &NatsSettings) -> Result<()> {
        let (least, most) = (Duration::from_millis(10), Self::MAX_CALL_TIMEOUT);
        if !(least..=most).contains(&settings.call_timeout) {
            return Err(Error::invalid(format!(
                "nats: call_timeout is {:?}; it must be from {least:?} to {most:?}",
                settings.call_timeout
            )));
        }
        if settings.replicas.is_some_and(|count| !(1..=5).contains(&count)) {
            return Err(Error::invalid("nats: replicas must be from 1 to 5"));
        }
        if settings.old_server.is_some_and(|age| age < Self::MIN_OLD_SERVER_AGE) {
            return Err(Error::invalid("nats: old_server must be at least a minute"));
        }
        Ok(())
    }
}

/// Prints neither URL nor secret.
impl fmt::Debug for NatsStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, call_timeout, replicas, old_server, .. } = self;
        f.debug_struct("NatsStoreBuilder")
            .field("prefix", prefix)
            .field("call_timeout", call_timeout)
            .field("replicas", replicas)
            .field("old_server", old_server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_published_ones() {
        let builder = NatsStoreBuilder::new("nats://localhost/ids");
        assert_eq!(builder.prefix, "semel");
        assert_eq!(builder.call_timeout, Duration::from_secs(5));
        assert_eq!((builder.replicas, builder.old_server), (None, None));
        builder.settings().unwrap();
    }

    #[test]
    fn the_builder_overrides_the_url() {
        let new = || NatsStoreBuilder::new("nats://a/ids?replicas=3");
        assert_eq!(new().settings().unwrap().replicas, Some(3));
        assert_eq!(new().replicas(1).settings().unwrap().replicas, Some(1));
    }

    #[test]
    fn absurd_settings_are_refused_by_name() {
        let new = || NatsStoreBuilder::new("nats://u:canary@localhost/ids");
        for (setting, builder) in [
            ("call_timeout", new().call_timeout(Duration::ZERO)),
            ("call_timeout", new().call_timeout(Duration::MAX)),
            ("replicas", new().replicas(0)),
            ("old_server", new().old_server(Duration::from_secs(1))),
            ("prefix", new().prefix("a.b")),
        ] {
            assert!(builder.settings().unwrap_err().to_string().contains(setting));
            assert!(!format!("{builder:?}").contains("canary"));
        }
    }
}
