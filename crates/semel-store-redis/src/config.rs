//! Settings of the store.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::{Error, Finding, HashSecret, Result, Store, StoreInfo};
use semel_remote::batch::BatchLimits;
use semel_remote::run_in_background;

use tokio::sync::watch;

use crate::{
    RedisStore,
    clock::ServerClock,
    granted_claims::Claims,
    meta::{Odds, Role},
    names::Names,
    replica_cache::FrontPlan,
    runtime_connections::LanePlan,
    settings::Plan,
    url::Target,
};

const CUT_OFF: &str = "redis: the store did not open";

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
    look_only: bool,
    connect_later: bool,
}

impl RedisStoreBuilder {
    /// What every key begins with unless set otherwise.
    pub const PREFIX: &str = "semel";
    /// How long a call may take before its connection is dropped.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
    /// Connections on each runtime that calls often, each with a batch of its own in flight. Half as many are semel's own, for
    /// renewals and for calls from elsewhere.
    pub const CONNECTIONS: usize = 6;
    /// Calls in one batch at most. With many callers, a trip takes up to four batches.
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
            look_only: false,
            connect_later: false,
        }
    }

    /// What every key begins with. Stores with different prefixes know nothing of each other.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a call may take before its connection is dropped.
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// Connections on each runtime that calls often, each with a batch of its own in flight. Half as many are semel's own, for
    /// renewals and for calls from elsewhere.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Calls in one batch at most. With many callers, a trip takes up to four batches. Small ones keep the
    /// server at work while the answers to others are on their way.
    pub fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// The secret that keys are hashed with. All processes on one prefix must have the same.
    pub fn hash_secret(self, secret: HashSecret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// For who looks and claims nothing: where no process has settled the secret yet, it stays open.
    pub fn look_only(self, look_only: bool) -> Self {
        Self { look_only, ..self }
    }

    /// Opens the store also while no server answers, for who can do without it: calls fail until one does, and
    /// if that is not fit, from then on with what is wrong with it. A login that is not accepted is an error.
    pub fn connect_later(self, connect_later: bool) -> Self {
        Self { connect_later, ..self }
    }

    /// Looks at the settings alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) for those that connecting would refuse.
    pub fn validate(&self) -> Result<()> {
        self.plan(Role::Store).map(drop)
    }

    /// Connects, and checks that the servers can keep what the store promises.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) when a setting or the server's configuration
    /// is wrong, or other processes hash keys with another secret;
    /// [`ErrorKind::Unavailable`](semel_core::ErrorKind::Unavailable) when there is no primary to connect to.
    pub async fn connect(self) -> Result<RedisStore> {
        let plan = Arc::new(self.plan(Role::Store)?);
        let limits = BatchLimits { batch: self.batch, ..BatchLimits::default() };
        let lanes = LanePlan { plan, connections: self.connections, limits };
        run_in_background(RedisStore::open(lanes, self.secret, self.connect_later), CUT_OFF).await?
    }

    /// Looks at the servers and at the hash secret, changes nothing, and says what is good and what is not.
    ///
    /// # Errors
    ///
    /// Only for settings that are wrong: a server that cannot be reached is a finding.
    pub async fn checks(self) -> Result<Vec<Finding>> {
        let plan = self.plan(Role::Store)?;
        run_in_background(async move { plan.findings().await }, CUT_OFF).await
    }

    /// The same for a server that is, or is to be, the front of `authority`.
    ///
    /// # Errors
    ///
    /// Only for settings that are wrong.
    pub async fn checks_front(self, authority: &dyn Store) -> Result<Vec<Finding>> {
        let plan = self.plan(Role::Front(authority.info().identity))?;
        run_in_background(async move { plan.findings().await }, CUT_OFF).await
    }

    pub(crate) fn front_plan(&self, authority: &StoreInfo) -> Result<FrontPlan> {
        if authority.identity.is_none() && !self.look_only {
            return Err(Error::invalid(format!(
                "redis: a {} store cannot be told from others, and a front belongs to one; put it before a \
                 PostgreSQL",
                authority.name
            )));
        }
        let limits = BatchLimits { batch: self.batch, ..BatchLimits::default() };
        let plan = Arc::new(self.plan(Role::Front(authority.identity))?);
        Ok(FrontPlan { plan, connections: self.connections, limits })
    }

    pub(crate) fn plan(&self, role: Role) -> Result<Plan> {
        self.check()?;
        let names = Names::new(&self.prefix)?;
        Ok(Plan {
            target: Target::parse(&self.url)?,
            names: match role {
                Role::Store => names,
                Role::Front(store) => names.of_front(store),
            },
            secret_check: HashSecret::check_value(self.secret.as_ref()),
            odds: Odds::default(),
            role,
            look_only: self.look_only,
            call_timeout: self.call_timeout,
            clock: ServerClock::new(),
            claims: Claims::new(),
            check: watch::Sender::default(),
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

/// Shows neither URL nor secret.
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
