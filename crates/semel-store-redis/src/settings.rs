//! The resolved settings of a store, and the state that all its connections share.

use std::time::Duration;

use tokio::sync::watch;

use crate::{
    clock::ServerClock,
    granted_claims::Claims,
    meta::{Odds, Role},
    names::Names,
    url::Target,
};

/// Everything a connection needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) names: Names,
    /// Tells the hash secrets of processes apart.
    pub(crate) secret_check: [u8; 32],
    pub(crate) odds: Odds,
    pub(crate) role: Role,
    /// Settles nothing for others.
    pub(crate) look_only: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) clock: ServerClock,
    pub(crate) claims: Claims,
    /// Told when a connection was lost: the others are checked before they are used again.
    pub(crate) check: watch::Sender<()>,
}
