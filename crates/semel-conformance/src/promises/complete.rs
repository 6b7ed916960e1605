//! T7: an outcome is recorded once, by its owner, even late.

use semel_core::{Claim, Completion, Current, Effect, Owner, Release, Replay, State, Store};

use crate::{
    LEASE, RETENTION, Time,
    operation::{LONG, TestOperation, assert_kept_for, failure, other_nonce, other_token, success},
};

/// Completes as another owner, and asserts that the record does not change. Returns the current state.
async fn superseded(operation: &TestOperation<'_>, owner: Owner) -> Current {
    let before = operation.record().await;
    let reply = operation.complete(owner, &success("intruder")).await;
    operation.assert_unchanged(&before, "a superseded completion changes nothing").await;
    match reply {
        Completion::Superseded(current) => current,
        reply => panic!("the key of another owner was completed: {reply:?}"),
    }
}

/// The owner's outcome is recorded, and the record says when.
pub async fn the_owner_records_its_outcome(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.completed(&success("done")).await;
    let record = operation.record().await;
    assert_eq!(record.state, State::Completed, "recorded, but not Completed");
    assert_eq!(record.outcome, Some(success("done")), "the outcome is in the record");
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the owner is kept");
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "the fingerprint stays pinned");
    let completed_at = record.completed_at.expect("a completed record says when");
    assert!(completed_at >= record.claimed_at, "completed before it was claimed");
    assert_kept_for(&record, LONG);
}

/// A completion after the end of the lease is recorded, if there was no takeover.
pub async fn a_late_completion_counts(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    let reply = operation.complete(owner, &success("late")).await;
    assert_eq!(reply, Completion::Recorded, "there was no takeover");
    assert!(matches!(operation.claim().await, Claim::Replay(_)), "recorded, but not replayed");
}

/// An owner that was lost, and whose key is on hold, may still complete.
pub async fn an_unknown_key_is_completed_by_its_owner(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    let owner = operation.lost(time).await;
    assert_eq!(operation.claim().await, Claim::Unknown, "a lost owner on hold");
    let reply = operation.complete(owner, &success("late")).await;
    assert_eq!(reply, Completion::Recorded, "the owner came back");
    let record = operation.record().await;
    assert_eq!(record.state, State::Completed, "Unknown became Completed");
    assert!(record.expires_at.is_some(), "an outcome expires after its retention");
}

/// An owner whose key became dead when its lease ended may still complete.
pub async fn a_dead_key_is_completed_by_its_lost_owner(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).cap(1);
    let owner = operation.lost(time).await;
    assert_eq!(operation.claim().await, Claim::Dead, "lost at the cap");
    let reply = operation.complete(owner, &success("late")).await;
    assert_eq!(reply, Completion::Recorded, "the owner came back");
    assert!(matches!(operation.claim().await, Claim::Replay(_)), "Dead became Completed");
}

/// An owner that released its key cannot complete it when the key is dead later.
pub async fn a_released_key_that_died_is_not_completed(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    let owner = operation.dead().await;
    assert_eq!(superseded(&operation, owner).await, Current::Dead, "released before it was dead");
}

/// A late copy of a claim from an earlier record of the key, which is dead now, owns nothing.
pub async fn a_late_copy_that_finds_a_dead_key_owns_nothing(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).retention(RETENTION);
    let stale = operation.owned().await;
    time.pass(LEASE + RETENTION).await;
    let anew = TestOperation::new(store).key(operation.key).cap(1);
    let owner = anew.released(Effect::Possible).await;
    assert_eq!(owner.token, stale.token, "another record of the key");
    assert_eq!(anew.claim_as(stale).await, Claim::Dead, "released at the cap");
    assert_eq!(superseded(&anew, stale).await, Current::Dead, "granted in an earlier record");
}

/// A repeated completion of the owner succeeds, and the first outcome is kept.
pub async fn the_first_outcome_stands(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.completed(&success("first")).await;
    let before = operation.record().await;
    for outcome in [success("first"), success("second"), failure()] {
        let reply = operation.complete(owner, &outcome).await;
        assert_eq!(reply, Completion::Recorded, "a repeated completion succeeds");
    }
    operation.assert_unchanged(&before, "a recorded outcome never changes").await;
}

/// A completion without a record is answered Missing and makes no record.
pub async fn a_completion_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stranger = Owner { key: operation.key, nonce: operation.request().nonce, token: 1 };
    let reply = operation.complete(stranger, &success("lost")).await;
    assert_eq!(reply, Completion::Missing, "there was nothing to complete");
    assert_eq!(operation.get().await, None, "a completion made a record");
}

/// The token alone does not complete.
pub async fn another_nonce_cannot_complete(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let current = superseded(&operation, other_nonce(owner)).await;
    assert!(matches!(current, Current::InProgress { .. }), "in progress, not {current:?}");
    operation.complete(owner, &success("done")).await;
    let current = superseded(&operation, other_nonce(owner)).await;
    assert!(matches!(current, Current::Completed(_)), "completed, not {current:?}");
}

/// The nonce alone does not complete.
pub async fn another_token_cannot_complete(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let current = superseded(&operation, other_token(owner)).await;
    assert!(matches!(current, Current::InProgress { .. }), "in progress, not {current:?}");
}

/// An owner that was taken over cannot complete, and gets the state of the new owner.
pub async fn a_stale_owner_cannot_complete(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    let fresh = operation.clone().lease(LONG).owned().await;
    let current = superseded(&operation, stale).await;
    let live = matches!(current, Current::InProgress { remaining } if !remaining.is_zero());
    assert!(live, "the new owner's lease is live, not {current:?}");
    let reply = operation.complete(fresh, &success("right")).await;
    assert_eq!(reply, Completion::Recorded, "the new owner completes");
}

/// An owner that was taken over gets the new owner's outcome.
pub async fn a_superseded_owner_learns_the_outcome(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    operation.completed(&success("right")).await;
    let Current::Completed(Replay { outcome, attempt, .. }) = superseded(&operation, stale).await
    else {
        panic!("a superseded owner did not get the new owner's outcome");
    };
    assert_eq!((outcome, attempt), (success("right"), 2), "the new owner's outcome and attempt");
}

/// An owner that released a key cannot complete it.
pub async fn a_released_key_is_not_completed(store: &dyn Store, _: &dyn Time) {
    for effect in [Effect::None, Effect::Possible] {
        let operation = TestOperation::new(store);
        let owner = operation.released(effect).await;
        assert_eq!(superseded(&operation, owner).await, Current::Open, "released before");
    }
}

/// An owner that released a key on hold, with a possible effect, may still complete it.
pub async fn a_key_held_by_a_retry_is_completed_by_its_owner(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let owner = operation.owned().await;
    assert_eq!(operation.release(owner, Effect::Possible).await, Release::Unknown, "Retry on hold");
    let reply = operation.complete(owner, &success("found out")).await;
    assert_eq!(reply, Completion::Recorded, "Unknown, and the pair is the owner's");
}
