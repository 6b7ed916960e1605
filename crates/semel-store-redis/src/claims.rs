//! The first claims that this process was granted and has not ended yet, as it wrote them. A claim that met
//! a record was written by a script, in part.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{
    CompleteRequest, Completion, Nonce, Owner, Record, Timestamp, remote::ByRandom, steps,
};

use crate::value::Seen;

/// Of more, the oldest are forgotten.
const AT_MOST: usize = 4096;

/// What a completion replaces, so that the server need not take it apart. A claim that is not here, or
/// has changed since, is looked at first.
#[derive(Debug)]
pub(crate) struct Claims(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    claims: HashMap<Nonce, Claimed, ByRandom>,
    /// In the order in which they were granted; some have ended since.
    order: VecDeque<Nonce>,
}

/// A claim as it was written.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) value: Bytes,
    /// An estimate: the server said no more than that it is granted.
    pub(crate) at: Timestamp,
}

/// A claim's value, and what takes its place.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) claimed: Bytes,
    /// Not as bytes yet: of a batch of large outcomes, those of one trip are packed at a time.
    pub(crate) completed: Record,
    /// Milliseconds from now on.
    pub(crate) kept: u64,
}

impl Claims {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn remember(&self, nonce: Nonce, claimed: Claimed) {
        let Known { claims, order } = &mut *self.0.lock();
        claims.insert(nonce, claimed);
        order.push_back(nonce);
        while claims.len() > AT_MOST
            && let Some(oldest) = order.pop_front()
        {
            claims.remove(&oldest);
        }
        if order.len() > 2 * AT_MOST {
            order.retain(|nonce| claims.contains_key(nonce));
            // More than there are claims: one nonce was granted many times, which is not what it is for.
            if order.len() > AT_MOST {
                claims.clear();
                order.clear();
            }
        }
    }

    /// Whoever does anything but complete a claim changes its value.
    pub(crate) fn forget(&self, owner: &Owner) {
        self.0.lock().claims.remove(&owner.nonce);
    }

    /// What a completion writes if the claim is as it was, and nothing if only a look can tell.
    pub(crate) fn end(&self, request: &CompleteRequest, now: Timestamp) -> Option<Ending> {
        let Claimed { value, at } = self.0.lock().claims.remove(&request.owner.nonce)?;
        let claim = Seen::parse(&request.owner.key, value.clone()).ok()?.claimed(at);
        let step = steps::complete(Some(&claim), request, now);
        let (Completion::Recorded, steps::Change::Put(record)) = (step.answer, step.change) else {
            return None;
        };
        let kept = record.terms.kept(&request.outcome).as_millis();
        // The server knows no time to live of nothing.
        (kept > 0).then_some(Ending { claimed: value, completed: record, kept })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel_core::{
        ClaimRequest, Fingerprint, KeyHash, OnLostOwner, Outcome, Span, Terms, steps::Change,
    };

    use super::*;
    use crate::value::encode_claim;

    fn owner() -> Owner {
        Owner { key: KeyHash::from_bytes([7; 32]), nonce: Nonce::random(), token: 1 }
    }

    fn remember(claims: &Claims, owner: &Owner) {
        let claimed = Claimed { value: Bytes::from_static(b"x"), at: Timestamp::default() };
        claims.remember(owner.nonce, claimed);
    }

    #[test]
    fn claims_that_have_ended_take_no_room() {
        let (claims, lasting) = (Claims::new(), owner());
        remember(&claims, &lasting);
        for _ in 0..5 * AT_MOST {
            let short = owner();
            remember(&claims, &short);
            claims.forget(&short);
        }
        let known = claims.0.lock();
        assert!(known.claims.contains_key(&lasting.nonce));
        assert!(known.order.len() <= 2 * AT_MOST);
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let (claims, owners) = (Claims::new(), [(); AT_MOST + 1].map(|()| owner()));
        owners.iter().for_each(|owner| remember(&claims, owner));
        let known = claims.0.lock();
        assert!(!known.claims.contains_key(&owners[0].nonce));
        assert!(owners[1..].iter().all(|owner| known.claims.contains_key(&owner.nonce)));
    }

    #[test]
    fn a_nonce_that_is_granted_again_and_again_takes_no_room() {
        let (claims, owner) = (Claims::new(), owner());
        for _ in 0..5 * AT_MOST {
            remember(&claims, &owner);
        }
        for _ in 0..5 * AT_MOST {
            claims.forget(&owner);
            remember(&claims, &owner);
        }
        assert!(claims.0.lock().order.len() <= 2 * AT_MOST);
    }

    #[test]
    fn what_is_no_claim_of_this_key_is_looked_at() {
        let (claims, owner) = (Claims::new(), owner());
        remember(&claims, &owner);
        let request = CompleteRequest { owner, outcome: Arc::new(Outcome::success("x")) };
        assert!(claims.end(&request, Timestamp::default()).is_none());
    }

    #[test]
    fn an_outcome_is_not_packed_before_its_trip() {
        let (claims, owner, day) = (Claims::new(), owner(), Span::from_millis(86_400_000));
        let claim = ClaimRequest {
            key: owner.key,
            fingerprint: Fingerprint::of_bytes(b"this"),
            nonce: owner.nonce,
            terms: Terms {
                lease: day,
                on_lost_owner: OnLostOwner::Rerun,
                max_attempts: None,
                retention: day,
                failure_retention: day,
            },
            labels: None,
        };
        let now = Timestamp::default();
        let Change::Put(record) = steps::claim(None, &claim, now).change else { panic!("granted") };
        claims.remember(owner.nonce, Claimed { value: encode_claim(record).0, at: now });
        let request = CompleteRequest { owner, outcome: Arc::new(Outcome::success("x")) };
        let ending = claims.end(&request, now).unwrap();
        assert!(Arc::ptr_eq(&ending.completed.outcome.unwrap(), &request.outcome));
    }
}
