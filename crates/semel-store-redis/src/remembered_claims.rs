//! Remembers the first claims that this process was granted and has not settled, as it wrote them, so that a completion
//! needs one round trip. Claims of a key with a record are not remembered: a script wrote a part of them.

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{CompleteRequest, Completion, Nonce, Record, Timestamp, steps};

use crate::value::StoredValue;

/// The number of sets. Nonces are random, so they are spread evenly.
const SETS: usize = 1024;
/// Claims in a set. When a set is full, its oldest claim is forgotten.
const WAYS: usize = 4;

/// The values that completions replace: the server compares the whole value. The completion of a claim that is not
/// here, or has changed on the server, reads the record first.
#[derive(Debug)]
pub(crate) struct RememberedClaims(Mutex<ClaimSets>);

#[derive(Debug)]
struct ClaimSets {
    sets: Vec<[Option<ClaimSlot>; WAYS]>,
    /// Claims remembered so far.
    count: u64,
}

#[derive(Debug)]
struct ClaimSlot {
    nonce: Nonce,
    number: u64,
    claimed: WrittenClaim,
}

/// A claim as it was written.
#[derive(Debug)]
pub(crate) struct WrittenClaim {
    pub(crate) value: Bytes,
    /// An estimate: the server's reply has no time.
    pub(crate) at: Timestamp,
}

/// A claim's value, and the record that replaces it.
#[derive(Debug)]
pub(crate) struct CompletionWrite {
    pub(crate) claimed: Bytes,
    /// It is encoded when its trip is sent, so that large outcomes of a batch are not all encoded at once.
    pub(crate) completed: Record,
    /// Retention in milliseconds.
    pub(crate) kept: u64,
}

impl RememberedClaims {
    pub(crate) fn new() -> Self {
        let sets = std::iter::repeat_with(Default::default).take(SETS).collect();
        Self(Mutex::new(ClaimSets { sets, count: 0 }))
    }

    pub(crate) fn remember(&self, nonce: Nonce, claimed: WrittenClaim) {
        let mut sets = self.0.lock();
        sets.count += 1;
        let number = sets.count;
        let age = |slot: &Option<ClaimSlot>| match slot {
            Some(claim) if claim.nonce == nonce => 0,
            None => 1,
            Some(claim) => 1 + claim.number,
        };
        if let Some(slot) = sets.of(&nonce).iter_mut().min_by_key(|slot| age(slot)) {
            *slot = Some(ClaimSlot { nonce, number, claimed });
        }
    }

    /// For requests other than a completion: they change the claim's value.
    pub(crate) fn forget(&self, nonce: &Nonce) {
        self.take(nonce);
    }

    fn take(&self, nonce: &Nonce) -> Option<WrittenClaim> {
        let mut sets = self.0.lock();
        let mut set = sets.of(nonce).iter_mut();
        let slot = set.find(|slot| slot.as_ref().is_some_and(|claim| claim.nonce == *nonce))?;
        Some(slot.take()?.claimed)
    }

    /// What a completion writes if the claim has not changed. `None` if the record has to be read first.
    pub(crate) fn completion(
        &self,
        request: &CompleteRequest,
        now: Timestamp,
    ) -> Option<CompletionWrite> {
        let WrittenClaim { value, at } = self.take(&request.owner.nonce)?;
        let claim = StoredValue::parse(&request.owner.key, value.clone()).ok()?.claimed(at);
        let step = steps::complete(Some(&claim), request, now);
        let (Completion::Recorded, steps::Change::Put(record)) = (step.answer, step.change) else {
            return None;
        };
        let kept = record.terms.kept(&request.outcome).as_millis();
        // Redis accepts no TTL of zero.
        (kept > 0).then_some(CompletionWrite { claimed: value, completed: record, kept })
    }
}

impl ClaimSets {
    fn of(&mut self, nonce: &Nonce) -> &mut [Option<ClaimSlot>; WAYS] {
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

    fn remember(claims: &RememberedClaims, owner: &Owner) {
        let claimed = WrittenClaim { value: Bytes::from_static(b"x"), at: Timestamp::default() };
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

    fn is_remembered(claims: &RememberedClaims, owner: &Owner) -> bool {
        let mut sets = claims.0.lock();
        sets.of(&owner.nonce).iter().flatten().any(|claim| claim.nonce == owner.nonce)
    }

    #[test]
    fn settled_claims_use_no_capacity() {
        let (claims, [lasting, short, ..]) = (RememberedClaims::new(), neighbours::<2>());
        remember(&claims, &lasting);
        for _ in 0..5 * WAYS {
            remember(&claims, &short);
            claims.forget(&short.nonce);
        }
        assert!(is_remembered(&claims, &lasting) && !is_remembered(&claims, &short));
    }

    #[test]
    fn a_full_set_forgets_its_oldest_claim() {
        let (claims, owners) = (RememberedClaims::new(), neighbours::<{ WAYS + 1 }>());
        owners.iter().for_each(|owner| remember(&claims, owner));
        assert!(!is_remembered(&claims, &owners[0]));
        assert!(owners[1..].iter().all(|owner| is_remembered(&claims, owner)));
    }

    #[test]
    fn a_nonce_that_is_granted_again_uses_one_slot() {
        let (claims, owners) = (RememberedClaims::new(), neighbours::<WAYS>());
        owners.iter().for_each(|owner| remember(&claims, owner));
        claims.forget(&owners[0].nonce);
        for _ in 0..5 {
            remember(&claims, &owners[2]);
        }
        assert!(owners[1..].iter().all(|owner| is_remembered(&claims, owner)));
        claims.forget(&owners[2].nonce);
        assert!(!is_remembered(&claims, &owners[2]), "the nonce has one slot");
    }

    #[test]
    fn nearly_all_of_a_thousand_running_claims_are_remembered() {
        let (claims, owners) = (RememberedClaims::new(), [(); 1000].map(|()| owner()));
        owners.iter().for_each(|owner| remember(&claims, owner));
        let known = owners.iter().filter(|owner| is_remembered(&claims, owner)).count();
        assert!(known > 980, "{known}");
    }

    #[test]
    fn a_value_that_is_no_claim_of_this_key_is_not_completed_blindly() {
        let (claims, owner) = (RememberedClaims::new(), owner());
        remember(&claims, &owner);
        let request = CompleteRequest { owner, outcome: Arc::new(Outcome::success("x")) };
        assert!(claims.completion(&request, Timestamp::default()).is_none());
    }

    #[test]
    fn an_outcome_is_not_encoded_before_its_trip() {
        let (claims, owner, day) =
            (RememberedClaims::new(), owner(), Span::from_millis(86_400_000));
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
        claims.remember(owner.nonce, WrittenClaim { value: encode_claim(record).0, at: now });
        let request = CompleteRequest { owner, outcome: Arc::new(Outcome::success("x")) };
        let write = claims.completion(&request, now).unwrap();
        assert!(Arc::ptr_eq(&write.completed.outcome.unwrap(), &request.outcome));
    }
}
