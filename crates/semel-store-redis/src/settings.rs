//! The resolved settings of a store, and the state that all its connections share.

use std::time::Duration;

use semel_remote::RenewalPace;
use tokio::sync::watch;

use crate::{
    clock::RedisClock,
    meta::{RedisRole, SecretMismatch},
    names::RedisNames,
    remembered_claims::RememberedClaims,
    url::RedisUrl,
};

/// Settings and shared state of one store's connections.
#[derive(Debug)]
pub(crate) struct RedisSettings {
    pub(crate) url: RedisUrl,
    pub(crate) names: RedisNames,
    /// Differs if the hash secret differs, and does not reveal it.
    pub(crate) secret_check: [u8; 32],
    pub(crate) secret_mismatch: SecretMismatch,
    pub(crate) role: RedisRole,
    /// Writes no value that other processes would have to agree with.
    pub(crate) skip_setup: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) clock: RedisClock,
    pub(crate) claims: RememberedClaims,
    pub(crate) pace: RenewalPace,
    /// Notified when a connection was lost: the workers check theirs before they use it again.
    pub(crate) recheck: watch::Sender<()>,
}
