//! What this process was granted, so that it can put a copy of what it completes.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::replica::Original;
use crate::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Nonce, Owner, Span, Terms,
    sync::Mutex,
};

/// Of more, the oldest are forgotten: their copies come with the first replay.
const AT_MOST: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

#[derive(Debug)]
pub(super) struct Grants(Mutex<LruCache<(KeyHash, Nonce), Grant>>);

#[derive(Debug)]
struct Grant {
    owner: Owner,
    fingerprint: Fingerprint,
    attempt: u32,
    terms: Terms,
    /// Completions that were begun.
    calls: u32,
}

impl Grant {
    fn is_like(&self, other: &Self) -> bool {
        let known = |grant: &Self| (grant.owner, grant.fingerprint, grant.attempt, grant.terms);
        known(self) == known(other)
    }
}

impl Grants {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(AT_MOST)))
    }

    pub(super) fn remember(&self, request: &ClaimRequest, claim: &Claim) {
        let Claim::Granted(lease) = claim else { return };
        let grant = Grant {
            owner: lease.owner,
            fingerprint: request.fingerprint,
            attempt: lease.attempt,
            terms: request.terms,
            calls: 0,
        };
        let mut grants = self.0.lock();
        let claim = (request.key, request.nonce);
        match grants.get_mut(&claim) {
            // Whether the record has these terms or the ones before, nobody can tell.
            Some(known) if !known.is_like(&grant) => known.calls += 1,
            Some(_) => {}
            None => drop(grants.put(claim, grant)),
        }
    }

    /// What is about to be completed, if this is the first call to do so.
    pub(super) fn begin(&self, request: &CompleteRequest) -> Option<Original> {
        let mut grants = self.0.lock();
        let grant = grants.get_mut(&(request.owner.key, request.owner.nonce))?;
        grant.calls += 1;
        let kept: Span = grant.terms.kept(&request.outcome);
        (grant.calls == 1 && grant.owner == request.owner).then(|| Original {
            key: request.owner.key,
            fingerprint: grant.fingerprint,
            outcome: request.outcome.clone(),
            attempt: grant.attempt,
            kept,
        })
    }

    /// True when no other call to complete it was begun: of two outcomes by one owner the first stands, and
    /// nobody can tell which one got through first.
    pub(super) fn end(&self, owner: &Owner) -> bool {
        self.0.lock().pop(&(owner.key, owner.nonce)).is_some_and(|grant| grant.calls == 1)
    }

    pub(super) fn forget(&self, owner: &Owner) {
        self.0.lock().pop(&(owner.key, owner.nonce));
    }
}
