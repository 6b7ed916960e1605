//! T5: a takeover after the end of a lease. No step uses the policy of a contender.
//!
//! A store that did not answer for longer than the lease may process a claim before the renewal or the completion of an
//! owner that is alive. So a takeover has two steps, T5a and T5: the first claim contests the key, and the owner has a
//! grace period in which the store can hear of it.

use std::time::Duration;

use semel_core::{
    Abandonment, Claim, Completion, Effect, OnLostOwner, Record, Release, Renewal, State, Store,
};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, success},
};

/// A takeover has the next token and attempt, a dirty record and a run of its own.
pub async fn a_lapsed_lease_is_taken_over(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
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

/// The first claim after the lease is busy for the grace period, and changes nothing but the lease.
pub async fn a_lapsed_lease_is_contested_first(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    let before = operation.record().await;
    let Claim::Busy { remaining } = operation.claim().await else {
        panic!("a living owner may not have been heard yet, and lost its key");
    };
    let (grace, after) = (before.terms.grace_period().to_duration(), operation.record().await);
    assert!(!remaining.is_zero() && remaining <= grace, "the grace period, not {remaining:?}");
    assert!(!before.contested && after.contested, "the record says that it is contested");
    assert!(after.lease_until > before.lease_until, "the owner has the grace period");
    let same = Record {
        contested: false,
        lease_until: before.lease_until,
        expires_at: before.expires_at,
        ..after
    };
    assert_eq!(same, before, "no owner and no attempt yet");
}

/// A claim in the grace period does not start it again.
pub async fn a_grace_period_is_not_extended(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    operation.claim().await;
    let contested = operation.record().await;
    let grace = contested.terms.grace_period().to_duration();
    time.pass(grace / 2).await;
    let reply = operation.claim().await;
    match reply {
        Claim::Busy { .. } => {
            operation.assert_unchanged(&contested, "the grace period started again").await;
            time.pass(grace / 2).await;
            assert!(operation.granted().await.takeover, "claims starve the takeover");
        }
        // The machine was too busy for this test's short grace period.
        reply => assert!(matches!(reply, Claim::Granted(lease) if lease.takeover), "{reply:?}"),
    }
}

/// The grace period depends on the lease of the owner, not on that of the contender.
pub async fn a_contender_does_not_choose_the_grace_period(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    let contender = operation.clone().lease(LONG);
    contender.claim().await;
    // The reply to a second claim comes from what the first one has written.
    let Claim::Busy { remaining } = contender.claim().await else {
        panic!("taken over without a grace period");
    };
    assert!(
        remaining <= operation.terms.grace_period().to_duration(),
        "a contender's lease was used"
    );
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    let reply = operation.clone().lease(Duration::from_millis(1)).claim().await;
    assert!(matches!(reply, Claim::Busy { .. }), "taken over without a grace period: {reply:?}");
    let record = operation.record().await;
    assert_eq!(record.terms.lease, operation.terms.lease, "a contender's lease was written");
}

/// An owner that renews in the grace period keeps its key, and its next lease is contested again before a takeover.
pub async fn a_renewal_ends_the_contest(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    operation.claim().await;
    assert_eq!(operation.renew(owner).await, Renewal::Extended, "the owner is heard");
    assert!(!operation.record().await.contested, "the renewal ends the contest");
    time.pass(LEASE).await;
    operation.contest(time).await;
    assert!(operation.granted().await.takeover, "the owner was lost");
}

/// An owner whose claim is repeated in the grace period keeps its key, too.
pub async fn a_repeated_claim_ends_the_contest(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    operation.claim().await;
    assert!(matches!(operation.claim_as(owner).await, Claim::Granted(_)), "the owner is heard");
    assert!(!operation.record().await.contested, "the repeated claim ends the contest");
    time.pass(LEASE).await;
    operation.contest(time).await;
    assert!(operation.granted().await.takeover, "the owner was lost");
}

/// An owner that completes or releases in the grace period is in time.
pub async fn a_settlement_ends_the_contest(store: &dyn Store, time: &dyn Time) {
    let new = || TestOperation::new(store).lease(LEASE);
    let [done, open, abandoned] = [new(), new(), new()];
    let owner = done.lapsed(time).await;
    done.claim().await;
    let reply = done.complete(owner, &success("late")).await;
    assert_eq!(reply, Completion::Recorded, "the owner is heard");
    let owner = open.lapsed(time).await;
    open.claim().await;
    assert_eq!(open.release(owner, Effect::None).await, Release::Open, "the owner is heard");
    let owner = abandoned.lapsed(time).await;
    abandoned.claim().await;
    let reply = abandoned.abandon(owner, Duration::ZERO).await;
    assert_eq!(reply, Abandonment::Lapsing, "the owner is heard");
    for operation in [&done, &open, &abandoned] {
        assert!(!operation.record().await.contested, "the contest is over");
    }
    assert!(matches!(done.claim().await, Claim::Replay(_)), "recorded, but not replayed");
    assert!(!open.granted().await.takeover, "a released key is no takeover");
    assert!(!abandoned.granted().await.takeover, "an abandoned key is no takeover");
}

/// A new owner has a grace period of its own.
pub async fn a_new_owner_is_contested_first(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lost(time).await;
    operation.granted().await;
    assert!(!operation.record().await.contested, "a grant ends the contest");
    time.pass(LEASE).await;
    operation.contest(time).await;
    assert_eq!(operation.granted().await.attempt, 3, "the second owner was lost, too");
}

/// A busy answer never extends the lease it reports.
pub async fn a_busy_answer_extends_nothing(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.owned().await;
    time.pass(LEASE / 3).await;
    operation.clone().lease(LONG).claim().await;
    time.pass(LEASE * 2 / 3).await;
    operation.contest(time).await;
    assert!(operation.granted().await.takeover, "a contender kept a lost owner's lease alive");
}

/// On hold a lost owner's key is not taken over: the key becomes unknown, and its owner is kept.
pub async fn a_lapsed_lease_on_hold_becomes_unknown(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    let owner = operation.lost(time).await;
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

/// At the cap the key of a lost owner is dead. Its owner is kept, since it may come back.
pub async fn a_lapsed_lease_at_the_cap_is_dead(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).cap(1);
    let owner = operation.lost(time).await;
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
    operation.lost(time).await;
    assert!(operation.clone().hold().granted().await.takeover, "a contender's Hold was used");
    let terms = operation.record().await.terms;
    assert_eq!(terms.on_lost_owner, OnLostOwner::Rerun, "fixed by the first claim");
}

/// A contender with Rerun does not run a key that its owner put on hold.
pub async fn a_contenders_rerun_is_not_used(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    operation.lost(time).await;
    let reply = operation.clone().rerun().claim().await;
    assert_eq!(reply, Claim::Unknown, "a contender's Rerun was used");
}

/// The cap of a contender neither makes a key dead nor revives it.
pub async fn a_contenders_cap_is_not_used(store: &dyn Store, time: &dyn Time) {
    let (uncapped, capped) =
        (TestOperation::new(store).lease(LEASE), TestOperation::new(store).lease(LEASE).cap(1));
    uncapped.owned().await;
    capped.lost(time).await;
    uncapped.contest(time).await;
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
    second.contest(time).await;
    assert!(operation.granted().await.takeover, "the first owner's lease was used for the second");
}
