//! The resolved settings of a store, and the state that all its connections share.

use std::time::Duration;

use crate::{connection::LostConnections, names::NatsNames, url::NatsUrl};

/// Settings and shared state of one store's connections.
#[derive(Clone, Debug)]
pub(crate) struct NatsSettings {
    pub(crate) url: NatsUrl,
    pub(crate) names: NatsNames,
    /// Differs if the hash secret differs, and does not reveal it.
    pub(crate) secret_check: [u8; 32],
    /// Makes no bucket, and writes no value that other processes would have to agree with.
    pub(crate) skip_setup: bool,
    pub(crate) call_timeout: Duration,
    /// The number of copies that the bucket must have, if the user has set one.
    pub(crate) replicas: Option<u8>,
    /// Accepts a server without per-key TTL. Its bucket forgets every record after this time.
    pub(crate) old_server: Option<Duration>,
    pub(crate) lost_connections: LostConnections,
}
