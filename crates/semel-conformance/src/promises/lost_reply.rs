//! T2: the reply to a claim was lost, and the owner sends the claim again with the same nonce.

use std::time::Duration;

use semel_core::{Claim, Lease, Renewal, Span, Store};

use crate::{LEASE, Time, operation::TestOperation};

fn regranted(claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => lease,
        reply => panic!("a claim whose reply was lost was answered {reply:?}"),
    }
}

/// A claim repeated under its nonce is the same grant: same token, same attempt.
pub async fn a_lost_reply_is_granted_again(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let lease = operation.granted().await;
    let again = regranted(operation.claim_as(lease.owner).await);
    assert_eq!(again, lease, "the retry of a lost reply is the same grant");
    assert_eq!(operation.record().await.attempts, 1, "the retry of a lost reply is no attempt");
}

/// A repeated claim starts the lease again, even after its end, if there was no takeover.
pub async fn a_lost_reply_rearms_the_lease(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    let again = regranted(operation.claim_as(owner).await);
    assert_eq!((again.owner, again.takeover), (owner, false), "nothing was taken over");
    let contender = operation.claim().await;
    assert!(matches!(contender, Claim::Busy { .. }), "re-armed, but answered {contender:?}");
}

/// On hold too, a repeated claim is granted after the end of its lease.
pub async fn a_lost_reply_on_hold_is_granted_again(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let lease = operation.granted().await;
    assert_eq!(
        regranted(operation.claim_as(lease.owner).await),
        lease,
        "hold changes nothing in T2"
    );
    assert_eq!(operation.record().await.expires_at, None, "a claim on hold never expires");
}

/// A repeated claim does not change `claimed_at`, so `max_run` counts from the first grant.
pub async fn a_lost_reply_does_not_restart_the_run(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let before = operation.record().await;
    time.pass(LEASE).await;
    regranted(operation.claim_as(owner).await);
    let after = operation.record().await;
    assert_eq!(after.claimed_at, before.claimed_at, "the run began at the first grant");
    assert!(after.lease_until > before.lease_until, "the lease starts again");
    assert_eq!(operation.renew_within(owner, LEASE).await, Renewal::Lost, "max_run started again");
}

/// A repeated claim gets the lease of the first grant, not the one in its request.
pub async fn a_lost_reply_keeps_its_terms(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let longer = operation.clone().lease(operation.terms.lease.to_duration() * 4).hold().cap(1);
    let again = regranted(longer.claim_as(owner).await);
    assert_eq!(
        Span::from(again.length),
        operation.terms.lease,
        "the lease is the one first granted"
    );
    assert_eq!(operation.record().await.terms, operation.terms, "terms are fixed by the grant");
}

/// An abandoned claim is not revived by a late copy, neither before nor after its lease ends.
pub async fn an_abandoned_claim_is_not_revived(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LEASE).await;
    let before = operation.record().await;
    let early = operation.claim_as(owner).await;
    assert!(matches!(early, Claim::Busy { .. }), "an abandoned claim was answered {early:?}");
    time.pass(LEASE).await;
    let late = Claim::Busy { remaining: Duration::ZERO };
    assert_eq!(operation.claim_as(owner).await, late, "a late copy of an abandoned claim is busy");
    operation.assert_unchanged(&before, "a late copy of an abandoned claim changes nothing").await;
}

/// After a takeover, a late copy of the former owner's claim is busy like any other claim.
pub async fn a_late_copy_after_a_takeover_is_busy(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    let fresh = operation.clone().lease(crate::operation::LONG).granted().await;
    let copy = operation.claim_as(stale).await;
    assert!(matches!(copy, Claim::Busy { .. }), "a late copy was answered {copy:?}");
    assert_eq!(
        operation.record().await.nonce,
        Some(fresh.owner.nonce),
        "the new owner stays owner"
    );
}
