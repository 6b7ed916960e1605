//! Settings of the store.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result};
use semel_remote::run_in_background;

use crate::{NatsStore, connection::Losses, names::Names, settings::Plan, url::Target};

const CUT_OFF: &str = "nats: the store did not open";

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
    look_only: bool,
}

impl NatsStoreBuilder {
    /// What every key begins with unless set otherwise.
    pub const PREFIX: &str = "semel";
    /// How long a call may take; within it, replies that were lost are looked for.
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
            look_only: false,
        }
    }

    /// What every key begins with. Stores with different prefixes know nothing of each other.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a call may take; within it, replies that were lost are looked for.
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// Copies that the bucket has to have; it is made with so many. Unless set: a bucket that is there has
    /// what it has, and a new one three in a cluster and one elsewhere.
    pub fn replicas(self, replicas: u8) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// Accepts a server before 2.11, which has no per-key TTL: its bucket forgets everything after
    /// `max_age`, what is Unknown or on hold too. A record never counts for longer than its retention.
    pub fn old_server(self, max_age: Duration) -> Self {
        Self { old_server: Some(max_age), ..self }
    }

    /// The secret that keys are hashed with. All processes on one prefix must have the same.
    pub fn hash_secret(self, secret: HashSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// For who looks and claims nothing: no bucket is made, and where no process has settled the secret
    /// yet, it stays open.
    pub fn look_only(self, look_only: bool) -> Self {
        Self { look_only, ..self }
    }

    /// Connects, makes the bucket if there is none, and checks that it can keep what the store promises.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting, the server or the bucket is
    /// wrong, or other processes hash keys with another secret;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no JetStream to connect to.
    pub async fn connect(self) -> Result<NatsStore> {
        let plan = Arc::new(self.plan()?);
        run_in_background(NatsStore::open(plan, self.secret), CUT_OFF).await?
    }

    /// Looks at the settings alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.plan().map(drop)
    }

    /// Looks at server, bucket and hash secret, changes nothing, and says what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for settings that are wrong: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let plan = Arc::new(self.plan()?);
        run_in_background(async move { plan.findings().await }, CUT_OFF).await
    }

    fn plan(&self) -> Result<Plan> {
        let target = Target::parse(&self.url)?;
        let plan = Plan {
            names: Names::new(&target.bucket, &self.prefix)?,
            secret_check: HashSecret::check_value(self.secret.as_ref()),
            look_only: self.look_only,
            call_timeout: self.call_timeout,
            replicas: self.replicas.or(target.replicas),
            old_server: self.old_server.or(target.old_server),
            losses: Losses::default(),
            target,
        };
        Self::check(&plan)?;
        Ok(plan)
    }

    fn check(plan: &Plan) -> Result<()> {
        let (least, most) = (Duration::from_millis(10), Self::MAX_CALL_TIMEOUT);
        if !(least..=most).contains(&plan.call_timeout) {
            return Err(Error::invalid(format!(
                "nats: call_timeout is {:?}; it must be from {least:?} to {most:?}",
                plan.call_timeout
            )));
        }
        if plan.replicas.is_some_and(|count| !(1..=5).contains(&count)) {
            return Err(Error::invalid("nats: replicas must be from 1 to 5"));
        }
        if plan.old_server.is_some_and(|age| age < Self::MIN_OLD_SERVER_AGE) {
            return Err(Error::invalid("nats: old_server must be at least a minute"));
        }
        Ok(())
    }
}

/// Shows neither URL nor secret.
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
        builder.plan().unwrap();
    }

    #[test]
    fn what_the_url_says_holds_unless_the_builder_says_more() {
        let new = || NatsStoreBuilder::new("nats://a/ids?replicas=3");
        assert_eq!(new().plan().unwrap().replicas, Some(3));
        assert_eq!(new().replicas(1).plan().unwrap().replicas, Some(1));
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
            assert!(builder.plan().unwrap_err().to_string().contains(setting));
            assert!(!format!("{builder:?}").contains("canary"));
        }
    }
}
