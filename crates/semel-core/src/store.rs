//! The store: keeps records and runs steps on them.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    AbandonRequest, Abandonment, ChangeFeed, Claim, ClaimRequest, CompleteRequest, Completion,
    Erasure, Forgetting, HashSecret, KeyHash, ListQuery, Purged, Record, Release, ReleaseRequest,
    RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats,
};

/// Keeps records. Each method is one atomic step on one key, by the store's own clock.
///
/// The steps are defined by the functions in [`steps`](crate::steps): a store either runs exactly
/// those under its own lock or transaction, or is a translation of them that the crate
/// `semel-conformance` compares with them. No step waits for another owner.
///
/// Batches are atomic per key, not as a whole, and return replies in the order of the requests. A key may
/// occur twice in one batch: its steps happen in the order of the requests too.
///
/// # Errors
///
/// A step that returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) may have happened;
/// with any other kind it did not.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What the engine needs to know about this store.
    fn info(&self) -> StoreInfo;

    /// Takes a key, or replies with its state (T1–T5).
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim>;
    /// Renews a lease (T6).
    async fn renew(&self, request: &RenewRequest) -> Result<Renewal>;
    /// Records an outcome once; later calls of the same owner change nothing (T7).
    async fn complete(&self, request: &CompleteRequest) -> Result<Completion>;
    /// Releases a key (T8).
    async fn release(&self, request: &ReleaseRequest) -> Result<Release>;
    /// Abandons a key when it is not known whether the work took effect (T9).
    async fn abandon(&self, request: &AbandonRequest) -> Result<Abandonment>;

    /// [`Store::claim`] for each request.
    async fn claim_many(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim>>;
    /// [`Store::renew`] for each request.
    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<Renewal>>;
    /// [`Store::complete`] for each request.
    async fn complete_many(&self, requests: &[CompleteRequest]) -> Vec<Result<Completion>>;
    /// [`Store::release`] for each request.
    async fn release_many(&self, requests: &[ReleaseRequest]) -> Vec<Result<Release>>;

    /// Carries out an operator's decision about a stuck key (T10).
    async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution>;
    /// Removes the content of a record and leaves a tombstone (T11).
    async fn erase(&self, key: &KeyHash) -> Result<Erasure>;
    /// Deletes at most `limit` expired records and puts lost owners on hold (T12).
    async fn purge(&self, limit: usize) -> Result<Purged>;
    /// Deletes a record that has no owner (T13).
    async fn forget(&self, key: &KeyHash) -> Result<Forgetting>;
    /// True when this process is the leader for `term` from now on, and does the maintenance for all processes, such as
    /// cleanup. There is one leader at most; a leader that calls this again in time stays the leader.
    async fn lead(&self, term: Duration) -> Result<bool>;

    /// The record of a key, unless it has expired. Never from a replica.
    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>>;
    /// Records in the order of their key's hash, without expired ones and those that cannot be read. A page with fewer
    /// than `limit` records is the last one.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>>;
    /// Numbers of records, by state.
    async fn stats(&self) -> Result<Stats>;
}

const _: Option<&dyn Store> = None; // Fails to compile if `Store` stops being object safe.

/// What the engine needs to know about a store.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    /// The `store` label of metrics.
    pub name: &'static str,
    /// Says whether acknowledged steps survive the process.
    pub durability: Durability,
    /// Outcomes over this size are recorded with their body omitted.
    pub max_outcome_bytes: usize,
    /// The secret that keys are hashed with: the store's own, or the one that all its processes share.
    pub hash_secret: Option<HashSecret>,
    /// Notifies of keys that other processes changed, if the store can. [`ChangeFeed::is_connected`] says whether it
    /// does.
    pub change_feed: Option<ChangeFeed>,
    /// True when other processes may work on the same records.
    pub shared: bool,
    /// Identifies this set of records, if the store can. A front belongs to one such set.
    pub identity: Option<StoreId>,
}

/// Identifies the records of one store: random, made once, and kept beside the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// A new id.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// An id that was read from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes that a store keeps.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Whether acknowledged steps survive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// They do not.
    Process,
    /// They do. The page of each store says what can still lose them.
    Durable,
}

/// Passes every step of [`Store`] that takes a request to another macro, so that a wrapper cannot forget one.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_steps {
    ($wrap:ident) => {
        $wrap! {
            claim(&$crate::ClaimRequest) -> $crate::Result<$crate::Claim>;
            renew(&$crate::RenewRequest) -> $crate::Result<$crate::Renewal>;
            complete(&$crate::CompleteRequest) -> $crate::Result<$crate::Completion>;
            release(&$crate::ReleaseRequest) -> $crate::Result<$crate::Release>;
            abandon(&$crate::AbandonRequest) -> $crate::Result<$crate::Abandonment>;
            claim_many(&[$crate::ClaimRequest]) -> Vec<$crate::Result<$crate::Claim>>;
            renew_many(&[$crate::RenewRequest]) -> Vec<$crate::Result<$crate::Renewal>>;
            complete_many(&[$crate::CompleteRequest]) -> Vec<$crate::Result<$crate::Completion>>;
            release_many(&[$crate::ReleaseRequest]) -> Vec<$crate::Result<$crate::Release>>;
            resolve(&$crate::ResolveRequest) -> $crate::Result<$crate::Resolution>;
            erase(&$crate::KeyHash) -> $crate::Result<$crate::Erasure>;
            purge(usize) -> $crate::Result<$crate::Purged>;
            forget(&$crate::KeyHash) -> $crate::Result<$crate::Forgetting>;
            lead(::std::time::Duration) -> $crate::Result<bool>;
            get(&$crate::KeyHash) -> $crate::Result<Option<$crate::Sighting>>;
            list(&$crate::ListQuery) -> $crate::Result<Vec<$crate::Record>>;
        }
    };
}

macro_rules! forward {
    ($($name:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl<S: Store + ?Sized> Store for Arc<S> {
            fn info(&self) -> StoreInfo {
                (**self).info()
            }
            $(async fn $name(&self, request: $request) -> $reply {
                (**self).$name(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                (**self).stats().await
            }
        }
    };
}

__store_steps!(forward);
