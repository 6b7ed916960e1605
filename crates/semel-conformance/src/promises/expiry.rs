//! T0: an expired record is absent for every step. A record with an unknown effect never expires.

use semel_core::{
    Abandonment, Claim, Completion, Decision, Effect, Erasure, Forgetting, ListQuery, Release,
    Renewal, Resolution, State, Store,
};

use crate::{
    LEASE, RETENTION, Time,
    operation::{LONG, TestOperation, expect_ok, failure, success},
};

/// Asserts that the key has no record, and that its next claim is a first one.
async fn absent(operation: &TestOperation<'_>, what: &str) {
    assert_eq!(operation.get().await, None, "{what}: expired, but still there");
    let lease = operation.with_other_fingerprint().granted().await;
    assert_eq!((lease.owner.token, lease.attempt), (1, 1), "{what}: the work may run again");
    assert!(!lease.takeover, "{what}: a first claim is no takeover");
}

/// An outcome is kept for its retention, counted from completion and not from the claim.
pub async fn an_outcome_is_kept_from_completion(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).retention(RETENTION);
    let owner = operation.owned().await;
    time.pass(RETENTION).await;
    operation.complete(owner, &success("done")).await;
    let claim = operation.claim().await;
    assert!(matches!(claim, Claim::Replay(_)), "retention ran before completion: {claim:?}");
    time.pass(RETENTION).await;
    absent(&operation, "an outcome").await;
}

/// A final failure is kept for the failure retention.
pub async fn a_failure_is_kept_for_its_own_retention(store: &dyn Store, time: &dyn Time) {
    let short = TestOperation::new(store).failure_retention(RETENTION);
    let long = TestOperation::new(store).retention(RETENTION).failure_retention(LONG);
    short.completed(&failure()).await;
    long.completed(&failure()).await;
    time.pass(RETENTION).await;
    absent(&short, "a failure").await;
    let claim = long.claim().await;
    assert!(matches!(claim, Claim::Replay(_)), "a failure had a success's retention: {claim:?}");
}

/// A success is kept for the success retention.
pub async fn a_success_is_kept_for_its_own_retention(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).failure_retention(RETENTION);
    operation.completed(&success("done")).await;
    time.pass(RETENTION).await;
    let claim = operation.claim().await;
    assert!(matches!(claim, Claim::Replay(_)), "a success had a failure's retention: {claim:?}");
}

/// A released key expires after the retention, counted from the release.
pub async fn a_released_key_expires(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).retention(RETENTION);
    let owner = operation.owned().await;
    time.pass(RETENTION).await;
    operation.release(owner, Effect::Possible).await;
    assert_eq!(operation.record().await.state, State::Open, "retention ran before the release");
    time.pass(RETENTION).await;
    absent(&operation, "a released key").await;
}

/// A dead key expires after the failure retention.
pub async fn a_dead_key_expires(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).cap(1).failure_retention(RETENTION);
    operation.dead().await;
    time.pass(RETENTION).await;
    absent(&operation, "a dead key").await;
}

/// A tombstone stops duplicates for the retention, and then expires.
pub async fn a_tombstone_expires(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).hold().retention(RETENTION);
    operation.unknown().await;
    operation.erase().await;
    time.pass(RETENTION).await;
    absent(&operation, "a tombstone").await;
}

/// Under Rerun a lost claim expires one retention after its lease, and not before.
pub async fn a_lost_claim_expires(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).retention(RETENTION);
    let owner = operation.lapsed(time).await;
    assert_eq!(operation.record().await.state, State::InProgress, "forgotten with its lease");
    time.pass(RETENTION).await;
    let reply = operation.complete(owner, &success("far too late")).await;
    assert_eq!(reply, Completion::Missing, "an expired claim was completed");
    absent(&operation, "a lost claim").await;
}

/// A claim on hold never expires: its owner may come back at any time.
pub async fn a_claim_on_hold_never_expires(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold().retention(RETENTION);
    let owner = operation.owned().await;
    assert_eq!(operation.record().await.expires_at, None, "a claim on hold has no expiry");
    time.pass(LEASE + RETENTION).await;
    operation.contest(time).await;
    assert_eq!(operation.claim().await, Claim::Unknown, "a claim on hold was forgotten");
    assert_eq!(operation.record().await.nonce, Some(owner.nonce), "the owner is kept");
}

/// An unknown key never expires, in whichever way it became unknown.
pub async fn an_unknown_key_never_expires(store: &dyn Store, time: &dyn Time) {
    let new = || TestOperation::new(store).hold().retention(RETENTION).failure_retention(RETENTION);
    let (abandoned, retried, lost) = (new(), new(), new().lease(LEASE));
    abandoned.unknown().await;
    let owner = retried.owned().await;
    retried.release(owner, Effect::Possible).await;
    lost.lost(time).await;
    lost.claim().await;
    time.pass(LEASE + RETENTION).await;
    for operation in [abandoned, retried, lost] {
        assert_eq!(operation.claim().await, Claim::Unknown, "an unknown key was forgotten");
    }
}

/// Every step treats an expired record as absent.
pub async fn an_expired_record_is_absent_for_every_step(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).retention(RETENTION);
    let owner = operation.completed(&success("done")).await;
    let seen = operation.record().await;
    time.pass(RETENTION).await;
    assert_eq!(operation.complete(owner, &success("late")).await, Completion::Missing, "complete");
    assert_eq!(operation.renew(owner).await, Renewal::Lost, "renew");
    assert_eq!(operation.release(owner, Effect::None).await, Release::Missing, "release");
    assert_eq!(operation.abandon(owner, LONG).await, Abandonment::Missing, "abandon");
    let decision = Decision::Complete(success("forced"));
    assert_eq!(operation.resolve(&seen, decision).await, Resolution::Missing, "resolve");
    assert_eq!(operation.erase().await, Erasure::Missing, "erase");
    assert_eq!(operation.forget().await, Forgetting::Missing, "forget");
    assert_eq!(operation.get().await, None, "get");
    let page = ListQuery { after: Some(before(&operation)), limit: 1, ..ListQuery::default() };
    let listed = expect_ok("list", store.list(&page).await);
    assert!(listed.iter().all(|record| record.key != operation.key), "list");
    absent(&operation, "a record that no step sees").await;
}

fn before(operation: &TestOperation<'_>) -> semel_core::KeyHash {
    super::reading::just_before(&operation.key)
}

/// A new record of a key has nothing of the expired one.
pub async fn a_new_record_inherits_nothing(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).hold().cap(1).retention(RETENTION);
    operation.released(Effect::None).await;
    let before = operation.record().await;
    time.pass(RETENTION).await;
    let second = TestOperation::new(store).key(operation.key);
    second.owned().await;
    let record = second.record().await;
    assert_eq!(record.terms, second.terms, "terms outlived their record");
    assert!(record.created_at > before.created_at, "a new record is made now");
    assert!(!record.dirty, "nothing happened since this record was made");
}
