//! The interface of an [`Arbiter`](crate::Arbiter)'s front.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{ChangeFeed, KeyHash, Record, Result};

/// Holds copies of completed records, for as long as the records are kept. It decides nothing.
///
/// A removal leaves a mark for [`Replica::MARK`]. While it is there, [`ReplicaCache::put`] changes nothing, so that a
/// slow node does not put back a copy that an operator removed.
#[async_trait]
pub trait ReplicaCache: fmt::Debug + Send + Sync + 'static {
    /// The `store` label of its metrics.
    fn name(&self) -> &'static str;
    /// Notifies of keys whose copies were removed, if it can.
    fn change_feed(&self) -> Option<ChangeFeed>;

    /// The copies of these keys, in their order; `None` where there is none.
    async fn look(&self, keys: &[KeyHash]) -> Vec<Result<Option<Replica>>>;
    /// Puts copies where there is neither a copy nor a mark. `called_at` is when the authority was called: the
    /// remaining time of the copies counts from then, and a put that arrives later than [`Replica::LATEST`] after it
    /// changes nothing.
    async fn put(&self, copies: &[Replica], called_at: Instant) -> Vec<Result<()>>;
    /// Removes a copy and leaves a mark. True when there was a copy.
    async fn remove(&self, key: &KeyHash) -> Result<bool>;
}

const _: Option<&dyn ReplicaCache> = None; // Fails to compile if `ReplicaCache` stops being object safe.

/// A copy of a completed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The record. Only its key, fingerprint, outcome, attempts and the time between completion and expiry mean
    /// anything.
    pub record: Record,
    /// How long the record is still kept.
    pub remaining: Duration,
}

impl Replica {
    /// A put that arrives later than this after the call to the authority changes nothing.
    pub const LATEST: Duration = Duration::from_secs(30);
    /// How long a removal's mark refuses copies: longer than a put may be delayed, with a margin for differing clocks.
    pub const MARK: Duration = Duration::from_secs(600);
}
