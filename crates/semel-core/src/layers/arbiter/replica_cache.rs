//! What an [`Arbiter`](crate::Arbiter) asks of its front.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{ChangeFeed, KeyHash, Record, Result};

/// Holds copies of completed records, for as long as those are kept. It decides nothing.
///
/// A removal leaves a mark on which [`ReplicaCache::put`] changes nothing, for [`Replica::MARK`]: a slow node must
/// not put back what an operator took away.
#[async_trait]
pub trait ReplicaCache: fmt::Debug + Send + Sync + 'static {
    /// The `store` label of its metrics.
    fn name(&self) -> &'static str;
    /// News of keys that were removed here, if it hears any.
    fn change_feed(&self) -> Option<ChangeFeed>;

    /// The copies of these keys, in their order; `None` where there is none.
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>>;
    /// Puts copies where there is neither a copy nor a mark. `asked` is when the authority was asked for
    /// them: what is left of them counts from then on, and a put that arrives later than [`Replica::LATEST`]
    /// after it changes nothing.
    async fn put(&self, copies: &[Replica], asked: Instant) -> Vec<Result<()>>;
    /// Removes a copy and leaves a mark. True when there was a copy.
    async fn remove(&self, key: &KeyHash) -> Result<bool>;
}

const _: Option<&dyn ReplicaCache> = None; // Fails to compile if `ReplicaCache` stops being object safe.

/// A copy of a completed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The record; only its key, fingerprint, outcome, attempts and the time between completion and expiry
    /// mean anything.
    pub record: Record,
    /// How long it is still kept.
    pub remaining: Duration,
}

impl Replica {
    /// A put that arrives later than this after its authority was asked changes nothing.
    pub const LATEST: Duration = Duration::from_secs(30);
    /// How long a removal keeps copies away: longer than a put can be on its way, with room for clocks.
    pub const MARK: Duration = Duration::from_secs(600);
}
