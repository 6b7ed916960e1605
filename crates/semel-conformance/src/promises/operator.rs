//! T10: an operator resolves a stuck key, if its record is still the one that the operator saw.

use std::time::Instant;

use semel_core::{
    Abandonment, Claim, Completion, Current, Decision, Effect, Nonce, Outcome, Owner, Record,
    Release, Renewal, Resolution, State, Store,
};

use crate::{
    LEASE, RETENTION, Time,
    operation::{LONG, TestOperation, assert_kept_for, failure, success},
};

/// Resolves the key by its current record.
async fn resolved(operation: &TestOperation<'_>, decision: Decision) {
    let reply = operation.resolve(&operation.record().await, decision).await;
    assert_eq!(reply, Resolution::Done, "a stuck key with its current record was not resolved");
}

/// Resolves by `seen`, and asserts that it is refused and the record does not change. Returns the current state.
async fn refused(operation: &TestOperation<'_>, seen: &Record) -> Current {
    let before = operation.record().await;
    let mut standing = None;
    for decision in [Decision::Complete(success("forced")), Decision::Reopen(Effect::None)] {
        match operation.resolve(seen, decision).await {
            Resolution::Refused(current) => standing = Some(current),
            reply => panic!("a resolution that must be refused was answered {reply:?}"),
        }
    }
    operation.assert_unchanged(&before, "a refused resolution changes nothing").await;
    standing.expect("both decisions were refused")
}

/// Asserts that the operator's outcome is replayed.
async fn replays(operation: &TestOperation<'_>, outcome: &Outcome) {
    let claim = operation.claim().await;
    let Claim::Replay(replay) = claim else { panic!("resolved, but answered {claim:?}") };
    assert_eq!(*replay.outcome, *outcome, "the operator's outcome is replayed");
}

/// An unknown key is completed with the operator's outcome.
pub async fn an_unknown_key_is_resolved_to_an_outcome(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    operation.unknown().await;
    resolved(&operation, Decision::Complete(success("checked by hand"))).await;
    replays(&operation, &success("checked by hand")).await;
    let record = operation.record().await;
    assert_eq!((record.state, record.nonce), (State::Completed, None), "the key has no owner");
    assert!(record.completed_at.is_some(), "a completed record says when");
    assert!(record.expires_at.is_some(), "an outcome expires after its retention");
}

/// A dead key is completed with the operator's outcome, a failure too.
pub async fn a_dead_key_is_resolved_to_an_outcome(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1).failure_retention(LONG * 2);
    operation.dead().await;
    resolved(&operation, Decision::Complete(failure())).await;
    replays(&operation, &failure()).await;
    let record = operation.record().await;
    assert_kept_for(&record, LONG * 2);
}

/// A key whose lease has ended is stuck too.
pub async fn a_lapsed_key_is_resolved(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    resolved(&operation, Decision::Complete(success("checked by hand"))).await;
    replays(&operation, &success("checked by hand")).await;
}

/// A key in its grace period is not stuck: the store may still process a renewal of its owner.
pub async fn a_contested_key_is_not_resolved(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lapsed(time).await;
    let contested_at = Instant::now();
    operation.claim().await;
    let contested = operation.record().await;
    let decision = Decision::Complete(success("checked by hand"));
    let reply = operation.resolve(&contested, decision).await;
    // On a busy machine the short grace period may end first.
    let is_over = contested_at.elapsed() >= contested.terms.grace_period().to_duration();
    let is_refused = matches!(reply, Resolution::Refused(Current::InProgress { .. }));
    assert!(is_refused || (is_over && reply == Resolution::Done), "resolved: {reply:?}");
}

/// A key reopened without an attestation has no attempts, is dirty, and keeps token and fingerprint.
pub async fn a_reopened_key_stays_pinned(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold().cap(1);
    operation.unknown().await;
    resolved(&operation, Decision::Reopen(Effect::Possible)).await;
    let record = operation.record().await;
    assert_eq!((record.state, record.nonce), (State::Open, None), "open, without an owner");
    assert_eq!((record.attempts, record.token), (0, 1), "attempts start again, the token is kept");
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "pinned: an effect is possible");
    assert!(record.dirty, "an operator's reopening attests nothing about earlier attempts");
    assert_eq!(
        operation.with_other_fingerprint().claim().await,
        Claim::Mismatch,
        "pinned to its fingerprint"
    );
    let lease = operation.granted().await;
    assert_eq!(
        (lease.owner.token, lease.attempt),
        (2, 1),
        "the token continues, attempts start again"
    );
    assert!(!lease.takeover, "a reopened key is no takeover");
}

/// A key reopened with the attestation that nothing happened is free for any request.
pub async fn an_attested_key_is_unpinned(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    operation.unknown().await;
    resolved(&operation, Decision::Reopen(Effect::None)).await;
    assert_eq!(operation.record().await.fingerprint, None, "the operator attests no effect");
    assert_eq!(
        operation.with_other_fingerprint().granted().await.owner.token,
        2,
        "free for another fingerprint"
    );
}

/// A dead key that is reopened has all its attempts again, and its first terms.
pub async fn a_reopened_dead_key_has_its_attempts_again(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    operation.dead().await;
    resolved(&operation, Decision::Reopen(Effect::Possible)).await;
    let again = operation.clone().cap(9).granted().await;
    assert_eq!((again.owner.token, again.attempt), (2, 1), "attempts start again");
    operation.release(again.owner, Effect::None).await;
    assert_eq!(
        operation.claim().await,
        Claim::Dead,
        "the cap is the first claim's, over a reopening"
    );
}

/// A key that changed since the operator saw it is not resolved.
pub async fn only_the_record_that_the_operator_saw_is_resolved(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    operation.unknown().await;
    let seen = operation.record().await;
    let strangers = [
        Record { nonce: Some(Nonce::random()), ..seen.clone() },
        Record { nonce: None, ..seen.clone() },
        Record { token: seen.token + 1, ..seen.clone() },
        Record { token: 0, ..seen.clone() },
    ];
    for other in strangers {
        assert_eq!(
            refused(&operation, &other).await,
            Current::Unknown,
            "not the record that was seen"
        );
    }
    resolved(&operation, Decision::Reopen(Effect::None)).await;
    let current = refused(&operation, &seen).await;
    assert_eq!(current, Current::Open, "decided already");
}

/// A key that became dead, expired and became dead again has a record that the operator did not see.
pub async fn a_decision_does_not_apply_to_a_later_record(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).cap(1).failure_retention(RETENTION);
    operation.dead().await;
    let seen = operation.record().await;
    time.pass(RETENTION).await;
    operation.dead().await;
    assert_eq!(refused(&operation, &seen).await, Current::Dead, "another record of the key");
}

/// Only stuck keys are resolved.
pub async fn only_stuck_keys_are_resolved(store: &dyn Store, _: &dyn Time) {
    let [live, done, open, erased] = std::array::from_fn(|_| TestOperation::new(store));
    live.owned().await;
    let current = refused(&live, &live.record().await).await;
    assert!(matches!(current, Current::InProgress { .. }), "live, not {current:?}");
    done.completed(&success("done")).await;
    let current = refused(&done, &done.record().await).await;
    assert!(matches!(current, Current::Completed(_)), "completed, not {current:?}");
    open.released(Effect::None).await;
    assert_eq!(refused(&open, &open.record().await).await, Current::Open, "released");
    erased.owned().await;
    erased.erase().await;
    assert_eq!(refused(&erased, &erased.record().await).await, Current::Erased, "erased");
}

/// The resolution of a key without a record is answered Missing and makes no record.
pub async fn a_resolution_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let (operation, model) = (TestOperation::new(store), TestOperation::new(store));
    model.owned().await;
    let reply =
        operation.resolve(&model.record().await, Decision::Complete(success("forced"))).await;
    assert_eq!(reply, Resolution::Missing, "there was nothing to resolve");
    assert_eq!(operation.get().await, None, "a resolution made a record");
}

/// After a resolution the former owner can do nothing.
pub async fn a_former_owner_can_do_nothing(store: &dyn Store, _: &dyn Time) {
    for decision in [Decision::Complete(success("by hand")), Decision::Reopen(Effect::Possible)] {
        let operation = TestOperation::new(store).hold();
        let owner = operation.unknown().await;
        resolved(&operation, decision).await;
        powerless(&operation, owner).await;
    }
}

async fn powerless(operation: &TestOperation<'_>, owner: Owner) {
    let before = operation.record().await;
    let completion = operation.complete(owner, &success("too late")).await;
    assert!(matches!(completion, Completion::Superseded(_)), "completed: {completion:?}");
    assert_eq!(operation.renew(owner).await, Renewal::Lost, "renewed after a resolution");
    let release = operation.release(owner, Effect::None).await;
    assert!(matches!(release, Release::Superseded(_)), "released: {release:?}");
    let abandonment = operation.abandon(owner, LONG).await;
    assert!(matches!(abandonment, Abandonment::Superseded(_)), "abandoned: {abandonment:?}");
    operation.assert_unchanged(&before, "a former owner changed a resolved key").await;
}
