//! The first claims that this process was granted and has not ended yet, as it wrote them. A claim that met
//! a record was written by a script, in part.

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{CompleteRequest, Completion, Nonce, Record, Timestamp, steps};

use crate::value::Seen;

/// Nonces are random, so they are spread evenly over so many sets.
const SETS: usize = 1024;
/// Claims in a set; of more, the oldest is forgotten.
const WAYS: usize = 4;

/// What a completion replaces, so that the server need not take it apart. A claim that is not here, or
/// has changed since, is looked at first.
#[derive(Debug)]
pub(crate) struct Claims(Mutex<Known>);

#[derive(Debug)]
struct Known {
    sets: Vec<[Option<Kept>; WAYS]>,
    /// Grants so far.
    count: u64,
}

#[derive(Debug)]
struct Kept {
    nonce: Nonce,
    number: u64,
    claimed: Claimed,
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
        let sets = std::iter::repeat_with(Default::default).take(SETS).collect();
        Self(Mutex::new(Known { sets, count: 0 }))
    }

    pub(crate) fn remember(&self, nonce: Nonce, claimed: Claimed) {
        let mut known = self.0.lock();
        known.count += 1;
        let number = known.count;
        let worth = |kept: &Option<Kept>| match kept {
            Some(kept) if kept.nonce == nonce => 0,
            None => 1,
            Some(kept) => 1 + kept.number,
        };
        if let Some(place) = known.set(&nonce).iter_mut().min_by_key(|kept| worth(kept)) {
            *place = Some(Kept { nonce, number, claimed });
        }
    }

    /// Whoever does anything but complete a claim changes its value.
    pub(crate) fn forget(&self, nonce: &Nonce) {
        self.take(nonce);
    }

    fn take(&self, nonce: &Nonce) -> Option<Claimed> {
        let mut known = self.0.lock();
        let mut set = known.set(nonce).iter_mut();
        let kept = set.find(|kept| kept.as_ref().is_some_and(|kept| kept.nonce == *nonce))?;
        Some(kept.take()?.claimed)
    }

    /// What a completion writes if the claim is as it was, and nothing if only a look can tell.
    pub(crate) fn end(&self, request: &CompleteRequest, now: Timestamp) -> Option<Ending> {
        let Claimed { value, at } = self.take(&request.owner.nonce)?;
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

impl Known {
    fn set(&mut self, nonce: &Nonce) -> &mut [Option<Kept>; WAYS] {
        let [high, low, ..] = *nonce.as_bytes();
        &mut self.sets[usize::from(u16::from_be_bytes([high, low])) % SETS]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use semel_core::{
        ClaimRequest, Fingerprint, KeyHash, OnLostOwner, Outcome, Owner, Span, Terms, steps::Change,
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

    /// Owners whose claims are in one set.
    fn neighbours<const N: usize>() -> [Owner; N] {
        std::array::from_fn(|at| {
            let mut nonce = [0; 16];
            nonce[15] = u8::try_from(at).unwrap();
            Owner { nonce: Nonce::from_bytes(nonce), ..owner() }
        })
    }

    fn is_known(claims: &Claims, owner: &Owner) -> bool {
        let mut known = claims.0.lock();
        known.set(&owner.nonce).iter().flatten().any(|kept| kept.nonce == owner.nonce)
    }

    #[test]
    fn claims_that_have_ended_take_no_room() {
        let (claims, [lasting, short, ..]) = (Claims::new(), neighbours::<2>());
        remember(&claims, &lasting);
        for _ in 0..5 * WAYS {
            remember(&claims, &short);
            claims.forget(&short.nonce);
        }
        assert!(is_known(&claims, &lasting) && !is_known(&claims, &short));
    }

    #[test]
    fn of_too_many_in_one_set_the_oldest_is_forgotten() {
        let (claims, owners) = (Claims::new(), neighbours::<{ WAYS + 1 }>());
        owners.iter().for_each(|owner| remember(&claims, owner));
        assert!(!is_known(&claims, &owners[0]));
        assert!(owners[1..].iter().all(|owner| is_known(&claims, owner)));
    }

    #[test]
    fn a_nonce_that_is_granted_again_takes_one_place() {
        let (claims, owners) = (Claims::new(), neighbours::<WAYS>());
        owners.iter().for_each(|owner| remember(&claims, owner));
        claims.forget(&owners[0].nonce);
        for _ in 0..5 {
            remember(&claims, &owners[2]);
        }
        assert!(owners[1..].iter().all(|owner| is_known(&claims, owner)));
        claims.forget(&owners[2].nonce);
        assert!(!is_known(&claims, &owners[2]), "it is there once");
    }

    #[test]
    fn hundreds_that_run_at_once_are_nearly_all_known() {
        let (claims, owners) = (Claims::new(), [(); 1000].map(|()| owner()));
        owners.iter().for_each(|owner| remember(&claims, owner));
        let known = owners.iter().filter(|owner| is_known(&claims, owner)).count();
        assert!(known > 980, "{known}");
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
