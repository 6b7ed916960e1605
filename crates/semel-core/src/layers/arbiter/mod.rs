//! The arbiter layer: the authority decides every step, the front replays copies. No work runs twice because of it.

#![deny(clippy::missing_trait_methods)]

mod front;
mod granted_claims;
mod memory_replica_cache;
mod replica;
mod replica_cache;
mod store;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::Arc;

use self::{front::FrontClient, granted_claims::GrantedClaims};
pub use self::{
    memory_replica_cache::MemoryReplicaCache,
    replica_cache::{Replica, ReplicaCache},
};
use crate::{
    ChangeFeed, Claim, ClaimRequest, Erasure, Error, ErrorKind, Forgetting, KeyHash, Observed,
    Result, Store, change_feed::FeedRelay, sync::TaskTracker,
};

/// A layer over two stores: the **authority** decides every claim and every step of an owner; the **front** holds
/// copies of completed records and answers their replays.
///
/// ```text
/// new key:  front read ──▶ authority claim ──▶ work ──▶ authority complete ──▶ front write
/// replay:   front read ──▶ reply
/// ```
///
/// - **Without the front** all steps still work, and replays take longer: its circuit breaker opens, and no call waits
///   for it.
/// - **Without the authority** new keys fail, and the front still replays its copies.
/// - **Forget and erase** remove the copy, then the record, then the copy again, and succeed when the front has
///   confirmed both removals. Otherwise they return an error that says so, and repeating them finishes them.
///
/// Each front belongs to one authority. Two authorities that share a front would replay each other's outcomes.
///
/// ```
/// use semel_core::{Arbiter, Engine, MemoryReplicaCache, MemoryStore};
/// let store = Arbiter::new(MemoryReplicaCache::new(), MemoryStore::new());
/// let engine = Engine::builder().store(store).build()?;
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Arbiter<F, A>(Arc<ArbiterInner<F, A>>);

#[derive(Debug)]
struct ArbiterInner<F, A> {
    front: FrontClient<F>,
    authority: Observed<A>,
    granted: GrantedClaims,
    feed: ChangeFeed,
    tasks: TaskTracker,
    /// Forwards the changes of both stores.
    _relay: Arc<FeedRelay>,
}

impl<F: ReplicaCache, A: Store> Arbiter<F, A> {
    /// `authority` decides, `front` replays copies of its recorded outcomes.
    pub fn new(front: F, authority: A) -> Self {
        let feed = ChangeFeed::new();
        let relay = FeedRelay::to(&feed);
        let sources = [front.change_feed(), authority.info().change_feed];
        sources.iter().flatten().for_each(|source| relay.forward(source));
        Self(Arc::new(ArbiterInner {
            front: FrontClient::new(front),
            authority: Observed::new(authority),
            granted: GrantedClaims::new(),
            feed,
            tasks: TaskTracker::new(),
            _relay: relay,
        }))
    }
}

impl<F: ReplicaCache, A: Store> ArbiterInner<F, A> {
    /// The front's replay for each of these claims, where it has a copy.
    async fn replays(&self, requests: &[ClaimRequest]) -> Vec<Option<Claim>> {
        let keys = requests.iter().map(|request| request.key).collect();
        let replicas = self.front.read(keys).await.into_iter().zip(requests);
        replicas.map(|(replica, request)| replica::replay(&replica?, request)).collect()
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        let (_, removed) = self.remove_first(key).await?;
        let reply = self.authority.erase(key).await?;
        let done = match reply {
            Erasure::Erased => "erased",
            Erasure::Missing => "not there any more",
        };
        self.remove(key, done).await?;
        removed.map_err(|error| self.removed_late(key, done, error))?;
        Ok(reply)
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        // Before the record is read: a copy that is written later belongs to a newer record.
        let has_copy = self.front.has(key).await;
        let (had_record, removed) = self.remove_first(key).await?;
        let reply = self.authority.forget(key).await?;
        let done = match reply {
            Forgetting::Forgotten => "forgotten",
            Forgetting::Missing => "not there any more",
            Forgetting::Refused(_) => return Ok(reply),
        };
        let removed_after = self.remove(key, done).await?;
        let removed = removed.map_err(|error| self.removed_late(key, done, error))?;
        // A copy without a record is the rest of an earlier call that did not finish; this call finishes it. If there
        // was a record and another call deleted it, that call returned `Forgotten`.
        let finishes_earlier_call = !had_record && (has_copy && removed || removed_after);
        Ok(if finishes_earlier_call { Forgetting::Forgotten } else { reply })
    }

    /// Removes the copy before the record changes, so that it is not replayed while the key runs again. An error of the
    /// front is returned for later; if the authority does not reply, the copy is not removed. Returns whether there
    /// was a record, and whether a copy was removed.
    async fn remove_first(&self, key: &KeyHash) -> Result<(bool, Result<bool>)> {
        let had_record = self.authority.get(key).await?.is_some();
        Ok((had_record, self.front.remove(key).await))
    }

    async fn remove(&self, key: &KeyHash, done: &str) -> Result<bool> {
        self.front.remove(key).await.map_err(|error| {
            let (front, authority) = (self.front.cache().name(), self.authority.info().name);
            let subject = format!(
                "half done: key {key} is {done} in {authority}, but {front} has not confirmed that its copy \
                 is removed, and may replay it; repeat this when {front} answers ({error})"
            );
            Error::new(ErrorKind::Unavailable, subject).with_source(error)
        })
    }

    /// The copy is removed now, but it may have been replayed when the key could already run again.
    fn removed_late(&self, key: &KeyHash, done: &str, error: Error) -> Error {
        let (front, authority) = (self.front.cache().name(), self.authority.info().name);
        let subject = format!(
            "key {key} is {done} in {authority} and its copy is removed from {front}, but late: {front} may have \
             replayed it meanwhile; nothing is left to do ({error})"
        );
        Error::new(ErrorKind::Unavailable, subject).with_source(error)
    }
}
