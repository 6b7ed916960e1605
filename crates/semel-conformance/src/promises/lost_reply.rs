//! T2: the reply to a claim was lost, and the claimant asks again under the same nonce.

use std::time::Duration;

use semel_core::{Claim, Lease, Renewal, Span, Store};

use crate::{LEASE, Time, work::Work};

fn regranted(claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => lease,
        answer => panic!("a claimant whose reply was lost was answered {answer:?}"),
    }
}

/// A claim repeated under its nonce is the same grant: same token, same attempt.
pub async fn a_lost_reply_is_granted_again(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let lease = work.granted().await;
    let again = regranted(work.claim_as(lease.owner).await);
    assert_eq!(again, lease, "the retry of a lost reply is the same grant");
    assert_eq!(work.record().await.attempts, 1, "the retry of a lost reply is no attempt");
}

/// A repeated claim runs the lease anew, even when it had lapsed and nobody had taken over.
pub async fn a_lost_reply_rearms_the_lease(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let owner = work.lapsed(time).await;
    let again = regranted(work.claim_as(owner).await);
    assert_eq!((again.owner, again.takeover), (owner, false), "nothing was taken over");
    let contender = work.claim().await;
    assert!(matches!(contender, Claim::Busy { .. }), "re-armed, but answered {contender:?}");
}

/// On hold too, a repeated claim is granted although its lease is over.
pub async fn a_lost_reply_on_hold_is_granted_again(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store).hold();
    let lease = work.granted().await;
    assert_eq!(regranted(work.claim_as(lease.owner).await), lease, "hold changes nothing in T2");
    assert_eq!(work.record().await.expires_at, None, "a claim on hold never expires");
}

/// A repeated claim leaves `claimed_at`, so `max_run` counts from the first grant.
pub async fn a_lost_reply_does_not_restart_the_run(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    let before = work.record().await;
    time.pass(LEASE).await;
    regranted(work.claim_as(owner).await);
    let after = work.record().await;
    assert_eq!(after.claimed_at, before.claimed_at, "the run began at the first grant");
    assert!(after.lease_until > before.lease_until, "the lease runs anew");
    assert_eq!(work.renew_within(owner, LEASE).await, Renewal::Lost, "max_run began anew");
}

/// A repeated claim uses the lease that was granted, not the one it now asks for.
pub async fn a_lost_reply_keeps_its_terms(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    let longer = work.clone().lease(work.terms.lease.to_duration() * 4).hold().cap(1);
    let again = regranted(longer.claim_as(owner).await);
    assert_eq!(Span::from(again.length), work.terms.lease, "the lease is the one first granted");
    assert_eq!(work.record().await.terms, work.terms, "terms are fixed by the grant");
}

/// An abandoned claim is not revived by a late copy, neither before nor after its lease ends.
pub async fn an_abandoned_claim_is_not_revived(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.abandon(owner, LEASE).await;
    let before = work.record().await;
    let early = work.claim_as(owner).await;
    assert!(matches!(early, Claim::Busy { .. }), "an abandoned claim was answered {early:?}");
    time.pass(LEASE).await;
    let late = Claim::Busy { remaining: Duration::ZERO };
    assert_eq!(work.claim_as(owner).await, late, "a late copy met its abandoned claim");
    work.unchanged(&before, "a late copy of an abandoned claim changes nothing").await;
}

/// After a takeover the former claim's late copy is a stranger: it waits like anybody else.
pub async fn a_late_copy_after_a_takeover_is_busy(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let stale = work.lapsed(time).await;
    let fresh = work.clone().lease(crate::work::LONG).granted().await;
    let copy = work.claim_as(stale).await;
    assert!(matches!(copy, Claim::Busy { .. }), "a late copy was answered {copy:?}");
    assert_eq!(work.record().await.nonce, Some(fresh.owner.nonce), "the new owner stays owner");
}
