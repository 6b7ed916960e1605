//! The store: where records live.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    AbandonRequest, Abandonment, ChangeFeed, Claim, ClaimRequest, CompleteRequest, Completion,
    Erasure, Forgetting, HashSecret, KeyHash, ListQuery, Purged, Record, Release, ReleaseRequest,
    RenewRequest, Renewal, Resolution, ResolveRequest, Result, Sighting, Stats,
};

/// Where records live. Each method is one atomic step on one key, judged by the store's own clock.
///
/// The steps are defined by the functions in [`steps`](crate::steps): a store either runs exactly
/// those under its own lock or transaction, or is a translation of them that the crate
/// `semel-conformance` compares with them. No step waits for another owner.
///
/// Batches are atomic per key, not as a whole, and answer in the order of the requests. A key may
/// occur twice in one batch: its steps happen in the order of the requests too.
///
/// # Errors
///
/// A step that answers [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) may have happened;
/// with any other kind it did not.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What the engine has to know about this store.
    fn info(&self) -> StoreInfo;

    /// Takes a key, or reports how it stands (T1–T5).
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim>;
    /// Keeps a lease (T6).
    async fn renew(&self, request: &RenewRequest) -> Result<Renewal>;
    /// Records an outcome once; later calls of the same owner change nothing (T7).
    async fn complete(&self, request: &CompleteRequest) -> Result<Completion>;
    /// Gives a key back (T8).
    async fn release(&self, request: &ReleaseRequest) -> Result<Release>;
    /// Gives up a key without knowing what happened (T9).
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
    /// Drops what a record holds and leaves a tombstone (T11).
    async fn erase(&self, key: &KeyHash) -> Result<Erasure>;
    /// Deletes at most `limit` expired records and puts lost owners on hold (T12).
    async fn purge(&self, limit: usize) -> Result<Purged>;
    /// Deletes a record that is not in anybody's hands (T13).
    async fn forget(&self, key: &KeyHash) -> Result<Forgetting>;
    /// True when this process does the chores of all, such as cleanup, for `term` from now on. At most
    /// one process is told so at a time; one that asks again in time stays.
    async fn lead(&self, term: Duration) -> Result<bool>;

    /// The record of a key, unless it has expired. Never from a replica.
    async fn get(&self, key: &KeyHash) -> Result<Option<Sighting>>;
    /// Records in the order of their key's hash, without expired ones and those that cannot be read. Fewer than
    /// asked for are the last ones.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>>;
    /// How full the store is.
    async fn stats(&self) -> Result<Stats>;
}

const _: Option<&dyn Store> = None; // Fails to compile if `Store` stops being object safe.

/// What the engine has to know about a store.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    /// The `store` label of metrics.
    pub name: &'static str,
    /// Whether acknowledged steps survive the process.
    pub durability: Durability,
    /// Outcomes over this size are recorded with their body omitted.
    pub max_outcome_bytes: usize,
    /// The secret that keys are hashed with here: the store's own, or the one that all processes on it
    /// agreed on.
    pub hash_secret: Option<HashSecret>,
    /// News about keys from other processes, if the store hears any. It says with [`ChangeFeed::hear`] from when on.
    pub change_feed: Option<ChangeFeed>,
    /// Other processes work on the same records.
    pub shared: bool,
    /// Which records these are, if the store can tell: a front belongs to them.
    pub identity: Option<StoreId>,
}

/// Tells the records of one store from those of all others: random, made once, kept beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// One that nobody has.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// One that was read back.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// As it is kept.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Whether acknowledged steps survive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything is forgotten when the process ends.
    Process,
    /// The store's own page says when its promise ends.
    Durable,
}

/// Hands every step of [`Store`] that takes a request to another macro, so that wrappers name none of
/// them and forget none.
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
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl<S: Store + ?Sized> Store for Arc<S> {
            fn info(&self) -> StoreInfo {
                (**self).info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                (**self).$name(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                (**self).stats().await
            }
        }
    };
}

__store_steps!(forward);
