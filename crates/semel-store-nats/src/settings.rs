//! Everything a connection needs to know.

use std::time::Duration;

use crate::{connection::Losses, names::Names, url::Target};

/// Everything a connection needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) names: Names,
    /// Tells the hash secrets of processes apart.
    pub(crate) secret_check: [u8; 32],
    /// Settles nothing for others.
    pub(crate) look_only: bool,
    pub(crate) call_timeout: Duration,
    /// Copies of the bucket, if it matters to the user.
    pub(crate) replicas: Option<u8>,
    /// A server without per-key TTL may do; its bucket keeps everything for so long at most.
    pub(crate) old_server: Option<Duration>,
    pub(crate) losses: Losses,
}
