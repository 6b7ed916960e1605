//! The claims that this process was granted, so that it can write a replica of each outcome that it records.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::replica::ReplicaSource;
use crate::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Nonce, Owner, Span, Terms,
    sync::Mutex,
};

/// Beyond this number the least recently used claim is forgotten: its replica is written at the first replay.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

#[derive(Debug)]
pub(super) struct GrantedClaims(Mutex<LruCache<(KeyHash, Nonce), GrantedClaim>>);

#[derive(Debug)]
struct GrantedClaim {
    owner: Owner,
    fingerprint: Fingerprint,
    attempt: u32,
    terms: Terms,
    /// Completions that were sent.
    completions: u32,
}

impl GrantedClaim {
    /// Compares all but the number of completions.
    fn is_same_claim(&self, other: &Self) -> bool {
        let claim = |grant: &Self| (grant.owner, grant.fingerprint, grant.attempt, grant.terms);
        claim(self) == claim(other)
    }
}

impl GrantedClaims {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CAPACITY)))
    }

    pub(super) fn remember(&self, request: &ClaimRequest, claim: &Claim) {
        let Claim::Granted(lease) = claim else { return };
        let grant = GrantedClaim {
            owner: lease.owner,
            fingerprint: request.fingerprint,
            attempt: lease.attempt,
            terms: request.terms,
            completions: 0,
        };
        let mut grants = self.0.lock();
        let claim = (request.key, request.nonce);
        match grants.get_mut(&claim) {
            // The record may have the terms of either claim, so no replica is made.
            Some(known) if !known.is_same_claim(&grant) => known.completions += 1,
            Some(_) => {}
            None => drop(grants.put(claim, grant)),
        }
    }

    /// Counts a completion. Returns what its replica is made of, if it is the first one of its claim.
    pub(super) fn begin_completion(&self, request: &CompleteRequest) -> Option<ReplicaSource> {
        let mut grants = self.0.lock();
        let grant = grants.get_mut(&(request.owner.key, request.owner.nonce))?;
        grant.completions += 1;
        let kept: Span = grant.terms.kept(&request.outcome);
        (grant.completions == 1 && grant.owner == request.owner).then(|| ReplicaSource {
            key: request.owner.key,
            fingerprint: grant.fingerprint,
            outcome: request.outcome.clone(),
            attempt: grant.attempt,
            kept,
        })
    }

    /// True when no other completion of the claim was sent. Of two outcomes of one owner the store keeps the first that
    /// arrives, and it is not known which one that was.
    pub(super) fn end_completion(&self, owner: &Owner) -> bool {
        self.0.lock().pop(&(owner.key, owner.nonce)).is_some_and(|grant| grant.completions == 1)
    }

    pub(super) fn forget(&self, owner: &Owner) {
        self.0.lock().pop(&(owner.key, owner.nonce));
    }
}
