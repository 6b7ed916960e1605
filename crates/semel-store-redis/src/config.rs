//! The builder of a store: defaults, options and their limits.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result, Store, StoreInfo};
use semel_remote::batch::BatchLimits;
use semel_remote::{RenewalPace, run_in_background};

use tokio::sync::watch;

use crate::{
    RedisStore,
    clock::RedisClock,
    meta::{RedisRole, SecretMismatch},
    names::RedisNames,
    remembered_claims::RememberedClaims,
    replica_cache::ReplicaCacheSettings,
    runtime_connections::RedisQueueSettings,
    settings::RedisSettings,
    url::RedisUrl,
};

const CANCELLED: &str = "redis: opening the store was cancelled";

/// Settings of a [`RedisStore`], made by [`RedisStore::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until `connect` or `checks`"]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    call_timeout: Duration,
    connections: usize,
    batch: usize,
    secret: Option<HashSecret>,
    skip_setup: bool,
    connect_later: bool,
}

impl RedisStoreBuilder {
    /// The default prefix of all keys.
    pub const PREFIX: &str = "semel";
    /// How long a call may take before its connection is dropped.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
    /// Connections on each runtime that calls often; each has one batch in flight. Half as many are on the background
    /// runtime, for renewals and for calls from other runtimes.
    pub const CONNECTIONS: usize = 6;
    /// Most requests in one batch. With many callers, a trip takes up to four batches.
    pub const BATCH: usize = 16;
    /// The longest call timeout: an index entry is kept longer than any call lasts.
    pub const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(20);

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: Self::PREFIX.to_owned(),
            call_timeout: Self::CALL_TIMEOUT,
            connections: Self::CONNECTIONS,
            batch: Self::BATCH,
            secret: None,
            skip_setup: false,
            connect_later: false,
        }
    }

    /// The prefix of all keys. Stores with different prefixes share nothing.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a call may take before its connection is dropped.
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// Connections on each runtime that calls often; each has one batch in flight. Half as many are on the background
    /// runtime, for renewals and for calls from other runtimes.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Most requests in one batch. With many callers, a trip takes up to four batches. With small batches, the server
    /// works on one while the replies of another are on their way.
    pub fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// The secret that keys are hashed with. It must be the same in all processes on one prefix.
    pub fn hash_secret(self, secret: HashSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Does not write the hash secret, nor the store that a front belongs to, if no process has written them. For a
    /// process that claims no keys, such as an operator's command.
    pub fn skip_setup(self, skip_setup: bool) -> Self {
        Self { skip_setup, ..self }
    }

    /// Opens the store even if the server cannot be reached, for a process that can work without it. Requests fail
    /// until the server is reached, and afterwards too if it is unfit. A refused login is an error at once.
    pub fn connect_later(self, connect_later: bool) -> Self {
        Self { connect_later, ..self }
    }

    /// Checks the settings, without a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.settings(RedisRole::Store).map(drop)
    }

    /// Connects, and checks that the servers can keep the store's promises.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting or the server's configuration
    /// is wrong, or other processes hash keys with another secret;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no primary to connect to.
    pub async fn connect(self) -> Result<RedisStore> {
        let settings = Arc::new(self.settings(RedisRole::Store)?);
        let limits = BatchLimits { batch: self.batch, ..BatchLimits::default() };
        let queues = RedisQueueSettings { settings, connections: self.connections, limits };
        run_in_background(RedisStore::open(queues, self.secret, self.connect_later), CANCELLED)
            .await?
    }

    /// Checks the servers and the hash secret, without writing, and reports what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for invalid settings: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let settings = self.settings(RedisRole::Store)?;
        run_in_background(async move { settings.findings().await }, CANCELLED).await
    }

    /// The same for a server that is, or will be, the front of `authority`.
    ///
    /// # Errors
    ///
    /// Only for invalid settings.
    pub async fn checks_front(self, authority: &dyn Store) -> Result<Vec<Finding>> {
        let settings = self.settings(RedisRole::Front(authority.info().identity))?;
        run_in_background(async move { settings.findings().await }, CANCELLED).await
    }

    pub(crate) fn replica_cache_settings(
        &self,
        authority: &StoreInfo,
    ) -> Result<ReplicaCacheSettings> {
        if authority.identity.is_none() && !self.skip_setup {
            return Err(Error::invalid(format!(
                "redis: a {} store has no identity, and a front belongs to one store; use it in front of PostgreSQL",
                authority.name
            )));
        }
        let limits = BatchLimits { batch: self.batch, ..BatchLimits::default() };
        let settings = Arc::new(self.settings(RedisRole::Front(authority.identity))?);
        Ok(ReplicaCacheSettings { settings, connections: self.connections, limits })
    }

    pub(crate) fn settings(&self, role: RedisRole) -> Result<RedisSettings> {
        self.check()?;
        let names = RedisNames::new(&self.prefix)?;
        Ok(RedisSettings {
            url: RedisUrl::parse(&self.url)?,
            names: match role {
                RedisRole::Store => names,
                RedisRole::Front(store) => names.for_front(store),
            },
            secret_check: HashSecret::check_value(self.secret.as_ref()),
            secret_mismatch: SecretMismatch::default(),
            role,
            skip_setup: self.skip_setup,
            call_timeout: self.call_timeout,
            clock: RedisClock::new(),
            claims: RememberedClaims::new(),
            pace: RenewalPace::default(),
            recheck: watch::Sender::default(),
        })
    }

    fn check(&self) -> Result<()> {
        let (least, most) = (Duration::from_millis(10), Self::MAX_CALL_TIMEOUT);
        if !(least..=most).contains(&self.call_timeout) {
            return Err(Error::invalid(format!(
                "redis: call_timeout is {:?}; it must be from {least:?} to {most:?}",
                self.call_timeout
            )));
        }
        if !(1..=64).contains(&self.connections) {
            return Err(Error::invalid("redis: connections must be from 1 to 64"));
        }
        if !(1..=BatchLimits::default().batch).contains(&self.batch) {
            return Err(Error::invalid("redis: a batch must be from 1 to 4096 calls"));
        }
        Ok(())
    }
}

/// Prints neither URL nor secret.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, call_timeout, connections, batch, .. } = self;
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", prefix)
            .field("call_timeout", call_timeout)
            .field("connections", connections)
            .field("batch", batch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_published_ones() {
        let builder = RedisStoreBuilder::new("redis://localhost");
        assert_eq!(builder.prefix, "semel");
        assert_eq!(builder.call_timeout, Duration::from_secs(5));
        assert_eq!((builder.connections, builder.batch), (6, 16));
        builder.check().unwrap();
    }

    #[test]
    fn absurd_settings_are_refused_by_name() {
        let new = || RedisStoreBuilder::new("redis://:canary@localhost");
        for (setting, builder) in [
            ("call_timeout", new().call_timeout(Duration::ZERO)),
            ("call_timeout", new().call_timeout(Duration::MAX)),
            ("connections", new().connections(0)),
            ("batch", new().batch(0)),
        ] {
            assert!(builder.check().unwrap_err().to_string().contains(setting));
            assert!(!format!("{builder:?}").contains("canary"));
        }
    }
}
