//! Remembers which store granted each claim: the owner's steps go there, and a late grant of the primary is released.

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;

use crate::{Nonce, Owner, sync::Mutex};

/// Beyond this number the least recently used claim is forgotten: both stores get its owner's steps then.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// The store that granted a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimOrigin {
    Primary,
    Secondary {
        /// How long all nodes have to read the secondary after each step of the owner.
        span: Duration,
    },
}

/// What this node knows about a claim, by its nonce.
#[derive(Clone, Copy, Debug)]
enum ClaimProgress {
    GrantedBy(ClaimOrigin),
    /// The primary did not reply in time.
    PrimaryTimedOut,
    /// The primary granted the claim after its timeout. A caller that repeats the claim with the same nonce gets it.
    GrantedLate(Owner),
    /// The secondary refused the claim after the primary's timeout.
    Refused,
}

#[derive(Debug)]
pub(super) struct ClaimOrigins(Mutex<LruCache<Nonce, ClaimProgress>>);

impl ClaimOrigins {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CAPACITY)))
    }

    pub(super) fn origin(&self, nonce: &Nonce) -> Option<ClaimOrigin> {
        match self.0.lock().get(nonce) {
            Some(ClaimProgress::GrantedBy(origin)) => Some(*origin),
            Some(
                ClaimProgress::PrimaryTimedOut
                | ClaimProgress::GrantedLate(_)
                | ClaimProgress::Refused,
            )
            | None => None,
        }
    }

    /// A store granted the claim. Returns the primary's late grant that has to be released.
    pub(super) fn granted(&self, nonce: Nonce, origin: ClaimOrigin) -> Option<Owner> {
        match (self.0.lock().put(nonce, ClaimProgress::GrantedBy(origin)), origin) {
            (Some(ClaimProgress::GrantedLate(owner)), ClaimOrigin::Secondary { .. }) => Some(owner),
            _ => None,
        }
    }

    /// The secondary refused the claim. Returns the primary's late grant that has to be released.
    pub(super) fn refused(&self, nonce: &Nonce) -> Option<Owner> {
        let mut claims = self.0.lock();
        let progress = claims.get_mut(nonce)?;
        match *progress {
            ClaimProgress::GrantedLate(owner) => {
                *progress = ClaimProgress::Refused;
                Some(owner)
            }
            ClaimProgress::PrimaryTimedOut => {
                *progress = ClaimProgress::Refused;
                None
            }
            ClaimProgress::GrantedBy(_) | ClaimProgress::Refused => None,
        }
    }

    /// The primary did not reply in time.
    pub(super) fn primary_timed_out(&self, nonce: Nonce) {
        self.0.lock().get_or_insert(nonce, || ClaimProgress::PrimaryTimedOut);
    }

    /// The primary granted the claim after its timeout. True when the grant has to be released.
    pub(super) fn granted_late(&self, owner: Owner) -> bool {
        let mut claims = self.0.lock();
        match claims.get(&owner.nonce) {
            Some(ClaimProgress::GrantedBy(ClaimOrigin::Primary)) => false,
            Some(
                ClaimProgress::GrantedBy(ClaimOrigin::Secondary { .. }) | ClaimProgress::Refused,
            ) => true,
            Some(ClaimProgress::PrimaryTimedOut | ClaimProgress::GrantedLate(_)) | None => {
                claims.put(owner.nonce, ClaimProgress::GrantedLate(owner));
                false
            }
        }
    }
}
