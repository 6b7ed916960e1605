//! T5: a takeover after the end of a lease. No step uses the policy of a contender.

use semel_core::{Claim, Effect, OnLostOwner, State, Store};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation},
};

/// A takeover of a lapsed lease has the next token and attempt, a dirty record and a run of its own.
pub async fn a_lapsed_lease_is_taken_over(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lapsed(time).await;
    let before = operation.record().await;
    let lease = operation.granted().await;
    let record = operation.record().await;
    assert!(lease.takeover, "the previous owner was lost, and the lease says so");
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "the next grant in the count");
    assert_ne!(lease.owner.nonce, stale.nonce, "a takeover has a nonce of its own");
    assert_eq!(record.nonce, Some(lease.owner.nonce), "the record is the new owner's");
    assert!(record.dirty, "the lost owner attested nothing");
    assert!(record.claimed_at > before.claimed_at, "a takeover starts a run of its own");
    assert_eq!(record.created_at, before.created_at, "a takeover is the same record");
}

/// A busy answer never extends the lease it reports.
pub async fn a_busy_answer_extends_nothing(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.owned().await;
    time.pass(LEASE / 3).await;
    operation.clone().lease(LONG).claim().await;
    time.pass(LEASE * 2 / 3).await;
    assert!(operation.granted().await.takeover, "a contender kept a lost owner's lease alive");
}

/// On hold a lapsed lease is not taken over: the key becomes unknown, and its owner is kept.
pub async fn a_lapsed_lease_on_hold_becomes_unknown(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    let owner = operation.lapsed(time).await;
    assert_eq!(operation.claim().await, Claim::Unknown, "a lost owner on hold");
    let record = operation.record().await;
    assert_eq!(record.state, State::Unknown, "answered Unknown, but the record is not");
    assert_eq!(
        (record.nonce, record.token),
        (Some(owner.nonce), 1),
        "the owner is kept, since it may come back"
    );
    assert_eq!((record.attempts, record.expires_at), (1, None), "no claim was granted");
}

/// At the cap a key with a lapsed lease is dead. Its owner is kept, since it may come back.
pub async fn a_lapsed_lease_at_the_cap_is_dead(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).cap(1);
    let owner = operation.lapsed(time).await;
    assert_eq!(operation.claim().await, Claim::Dead, "taken over beyond the cap");
    let record = operation.record().await;
    assert_eq!((record.state, record.attempts), (State::Dead, 1), "Dead counts no attempt");
    assert_eq!(
        (record.nonce, record.token),
        (Some(owner.nonce), 1),
        "the owner is kept, since it may come back"
    );
}

/// A contender with Hold does not put another owner's key on hold.
pub async fn a_contenders_hold_is_not_used(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    assert!(operation.clone().hold().granted().await.takeover, "a contender's Hold was used");
    let terms = operation.record().await.terms;
    assert_eq!(terms.on_lost_owner, OnLostOwner::Rerun, "fixed by the first claim");
}

/// A contender with Rerun does not run a key that its owner put on hold.
pub async fn a_contenders_rerun_is_not_used(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    operation.lapsed(time).await;
    let reply = operation.clone().rerun().claim().await;
    assert_eq!(reply, Claim::Unknown, "a contender's Rerun was used");
}

/// The cap of a contender neither makes a key dead nor revives it.
pub async fn a_contenders_cap_is_not_used(store: &dyn Store, time: &dyn Time) {
    let (uncapped, capped) =
        (TestOperation::new(store).lease(LEASE), TestOperation::new(store).lease(LEASE).cap(1));
    uncapped.owned().await;
    capped.lapsed(time).await;
    assert_eq!(
        uncapped.clone().cap(1).granted().await.attempt,
        2,
        "the cap of a contender made the key dead"
    );
    let (terms, contender) =
        (uncapped.record().await.terms, TestOperation::new(store).key(capped.key));
    assert_eq!(terms.max_attempts, None, "the cap is fixed by the first claim");
    assert_eq!(contender.claim().await, Claim::Dead, "a contender without a cap revived");
}

/// A contender is answered with the owner's lease, not with its own.
pub async fn a_contenders_lease_is_not_used(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).lease(LONG);
    operation.owned().await;
    let before = operation.record().await;
    let Claim::Busy { remaining } = operation.clone().lease(LONG * 10).claim().await else {
        panic!("a key with a live lease was not busy");
    };
    assert!(remaining <= LONG, "a contender's lease was used");
    operation.assert_unchanged(&before, "a contender's terms were written").await;
}

/// Hold and cap stay as the first claim set them, also after a release.
pub async fn terms_of_the_first_claim_outlive_a_release(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold().cap(3);
    operation.released(Effect::None).await;
    let second = TestOperation::new(store).key(operation.key).lease(LEASE).cap(9);
    second.owned().await;
    let terms = operation.record().await.terms;
    assert_eq!(terms.on_lost_owner, OnLostOwner::Hold, "on_lost_owner is the first claim's");
    assert_eq!(terms.max_attempts, operation.terms.max_attempts, "the cap is the first claim's");
}

/// Lease and retentions are the current owner's, written at every grant.
pub async fn lease_and_retention_are_the_current_owners(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.released(Effect::None).await;
    let second = operation.clone().lease(LEASE).retention(LONG * 2).failure_retention(LONG * 3);
    assert_eq!(second.granted().await.length, LEASE, "a lease is its owner's");
    assert_eq!(operation.record().await.terms, second.terms, "the terms of the second owner");
    time.pass(LEASE).await;
    assert!(operation.granted().await.takeover, "the first owner's lease was used for the second");
}
