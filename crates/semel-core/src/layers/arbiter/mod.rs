//! Two stores as one that cannot run anything twice: the authority decides, the front replays.

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

use self::{front::Front, granted_claims::Grants};
pub use self::{
    memory_replica_cache::MemoryReplicaCache,
    replica_cache::{Replica, ReplicaCache},
};
use crate::{
    ChangeFeed, Claim, ClaimRequest, Erasure, Error, ErrorKind, Forgetting, KeyHash, Observed,
    Result, Store, change_feed::FeedRelay, sync::TaskTracker,
};

/// A store of two: the **authority** decides every key and every step of an owner; the **front** holds copies
/// of completed records and answers their replays.
///
/// ```text
/// new key:  front look ──▶ authority claim ──▶ work ──▶ authority complete ──▶ front put
/// replay:   front look ──▶ answered
/// ```
///
/// - **Without the front** everything goes on, a trip slower: a circuit opens, and nobody waits for it.
/// - **Without the authority** new keys fail, and what the front holds is still replayed.
/// - **Forget and erase** take the copy away, ask the authority, and are done when the front has confirmed
///   before and after that the copy is gone. Until then they are errors that say so, and repeating them
///   finishes them.
///
/// The front belongs to this authority alone: two that share one would replay each other's outcomes.
///
/// ```
/// use semel_core::{Arbiter, Engine, MemoryReplicaCache, MemoryStore};
/// let store = Arbiter::new(MemoryReplicaCache::new(), MemoryStore::new());
/// let engine = Engine::builder().store(store).build()?;
/// # Ok::<_, semel_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Arbiter<F, A>(Arc<Inner<F, A>>);

#[derive(Debug)]
struct Inner<F, A> {
    front: Front<F>,
    authority: Observed<A>,
    grants: Grants,
    feed: ChangeFeed,
    tasks: TaskTracker,
    /// Brings the news of both.
    _relay: Arc<FeedRelay>,
}

impl<F: ReplicaCache, A: Store> Arbiter<F, A> {
    /// `authority` decides, `front` replays what is recorded there.
    pub fn new(front: F, authority: A) -> Self {
        let feed = ChangeFeed::new();
        let relay = FeedRelay::to(&feed);
        let news = [front.change_feed(), authority.info().change_feed];
        news.iter().flatten().for_each(|news| relay.forward(news));
        Self(Arc::new(Inner {
            front: Front::new(front),
            authority: Observed::new(authority),
            grants: Grants::new(),
            feed,
            tasks: TaskTracker::new(),
            _relay: relay,
        }))
    }
}

impl<F: ReplicaCache, A: Store> Inner<F, A> {
    /// The front's answers to these claims, where it has one.
    async fn replays(&self, requests: &[ClaimRequest]) -> Vec<Option<Claim>> {
        let keys = requests.iter().map(|request| request.key).collect();
        let copies = self.front.look(keys).await.into_iter().zip(requests);
        copies.map(|(copy, request)| replica::answer(&copy?, request)).collect()
    }

    async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        let (_, taken) = self.take_away(key).await?;
        let answer = self.authority.erase(key).await?;
        let done = match answer {
            Erasure::Erased => "erased",
            Erasure::Missing => "not there any more",
        };
        self.remove(key, done).await?;
        taken.map_err(|error| self.late(key, done, error))?;
        Ok(answer)
    }

    async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        // Before the record is looked for: a copy that comes after has a record of its own.
        let has_copy = self.front.has(key).await;
        let (was_there, taken) = self.take_away(key).await?;
        let answer = self.authority.forget(key).await?;
        let done = match answer {
            Forgetting::Forgotten => "forgotten",
            Forgetting::Missing => "not there any more",
            Forgetting::Refused(_) => return Ok(answer),
        };
        let left = self.remove(key, done).await?;
        let taken = taken.map_err(|error| self.late(key, done, error))?;
        // A copy without a record is left of a call that did not come to its end. If there was a record, who took
        // that has been told.
        let is_finished = !was_there && (has_copy && taken || left);
        Ok(if is_finished { Forgetting::Forgotten } else { answer })
    }

    /// Removes the copy before the record changes, so that nobody is told of it while the key runs anew. If the
    /// front is gone, that is told after; if the authority is, the copy stays of use. Says whether there was
    /// a record, and a copy.
    async fn take_away(&self, key: &KeyHash) -> Result<(bool, Result<bool>)> {
        let was_there = self.authority.get(key).await?.is_some();
        Ok((was_there, self.front.remove(key).await))
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

    /// The copy is gone now. Nobody can say that it was while the key could run anew.
    fn late(&self, key: &KeyHash, done: &str, error: Error) -> Error {
        let (front, authority) = (self.front.cache().name(), self.authority.info().name);
        let subject = format!(
            "key {key} is {done} in {authority} and its copy is removed from {front}, but late: {front} may have \
             replayed it meanwhile; nothing is left to do ({error})"
        );
        Error::new(ErrorKind::Unavailable, subject).with_source(error)
    }
}
