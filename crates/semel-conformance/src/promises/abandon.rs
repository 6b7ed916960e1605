//! T9: the owner abandons its key without knowing what happened.

use std::time::Duration;

use semel_core::{Abandonment, Claim, Completion, Current, Effect, Owner, Release, State, Store};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, other_nonce, other_token, success},
};

/// Under Rerun an abandoned key is busy for the backoff, and then granted to the next claim.
pub async fn an_abandoned_key_lapses_after_its_backoff(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    assert_eq!(
        operation.abandon(owner, LEASE).await,
        Abandonment::Lapsing,
        "abandoned under Rerun"
    );
    let Claim::Busy { remaining } = operation.claim().await else {
        panic!("a contender was not busy for the backoff");
    };
    assert!(remaining <= LEASE, "the lease ends with the backoff, not in {remaining:?}");
    time.pass(LEASE).await;
    let lease = operation.granted().await;
    assert!(!lease.takeover, "an owner that abandoned its key was not lost");
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "it is the next attempt");
    let record = operation.record().await;
    assert!(
        record.dirty && !record.abandoned,
        "the record is dirty, and the new owner has not abandoned it"
    );
}

/// Without a backoff an abandoned key is free at once.
pub async fn an_abandoned_key_without_backoff_is_free(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, Duration::ZERO).await;
    assert_eq!(operation.granted().await.attempt, 2, "without a backoff the key is free at once");
}

/// A backoff may be longer than the rest of the lease.
pub async fn a_backoff_may_outlast_the_lease(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    time.pass(LEASE).await;
    let reply = operation.claim().await;
    assert!(matches!(reply, Claim::Busy { .. }), "the backoff was cut short: {reply:?}");
}

/// An abandonment is written in the record, and the owner stays the same.
pub async fn an_abandoned_key_keeps_its_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    let record = operation.record().await;
    assert!(record.abandoned, "the record does not say that the owner abandoned it");
    assert_eq!(record.state, State::InProgress, "under Rerun the key waits to be taken over");
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "the fingerprint stays pinned");
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the owner is kept");
}

/// On hold an abandoned key is unknown at once.
pub async fn an_abandoned_key_on_hold_is_unknown(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let owner = operation.owned().await;
    assert_eq!(operation.abandon(owner, LONG).await, Abandonment::Unknown, "abandoned on hold");
    let record = operation.record().await;
    assert_eq!(
        (record.state, record.expires_at),
        (State::Unknown, None),
        "until an operator resolves it"
    );
    assert_eq!(operation.claim().await, Claim::Unknown, "an unknown key does not run again");
}

/// An owner that abandoned a key may still complete it before a takeover.
pub async fn an_abandoned_key_can_be_completed(store: &dyn Store, _: &dyn Time) {
    for operation in [TestOperation::new(store), TestOperation::new(store).hold()] {
        let owner = operation.owned().await;
        operation.abandon(owner, Duration::ZERO).await;
        let reply = operation.complete(owner, &success("after all")).await;
        assert_eq!(reply, Completion::Recorded, "the owner found out what happened");
        assert!(matches!(operation.claim().await, Claim::Replay(_)), "recorded, but not replayed");
    }
}

/// An owner that abandoned a key may still release it before a takeover.
pub async fn an_abandoned_key_can_be_released(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    assert_eq!(operation.release(owner, Effect::None).await, Release::Open, "nothing had happened");
    let lease = operation.granted().await;
    assert!(!lease.takeover, "a released key is no takeover");
    assert!(!operation.record().await.abandoned, "the new owner has not abandoned it");
}

/// Only the owner can abandon a key.
pub async fn only_the_owner_abandons(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    let owner = operation.clone().lease(LONG).owned().await;
    let before = operation.record().await;
    for stranger in [stale, other_nonce(owner), other_token(owner)] {
        let reply = operation.abandon(stranger, Duration::ZERO).await;
        let superseded = matches!(reply, Abandonment::Superseded(Current::InProgress { remaining }) if !remaining.is_zero());
        assert!(superseded, "a stranger's abandonment was answered {reply:?}");
    }
    operation.assert_unchanged(&before, "a stranger's abandonment changes nothing").await;
}

/// Only work in progress is abandoned.
pub async fn only_work_in_progress_is_abandoned(store: &dyn Store, _: &dyn Time) {
    let [done, open, unknown] =
        [TestOperation::new(store), TestOperation::new(store), TestOperation::new(store).hold()];
    let owner = done.completed(&success("done")).await;
    let reply = done.abandon(owner, LONG).await;
    assert!(
        matches!(reply, Abandonment::Superseded(Current::Completed(_))),
        "a completed key was abandoned: {reply:?}"
    );
    let owner = open.released(Effect::None).await;
    let reply = open.abandon(owner, LONG).await;
    assert_eq!(reply, Abandonment::Superseded(Current::Open), "a released key was abandoned");
    let owner = unknown.unknown().await;
    let reply = unknown.abandon(owner, LONG).await;
    assert_eq!(reply, Abandonment::Superseded(Current::Unknown), "abandoned twice on hold");
}

/// The abandonment of a key without a record is answered Missing and makes no record.
pub async fn an_abandonment_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stranger = Owner { key: operation.key, nonce: operation.request().nonce, token: 1 };
    assert_eq!(operation.abandon(stranger, LONG).await, Abandonment::Missing, "nothing to abandon");
    assert_eq!(operation.get().await, None, "an abandonment made a record");
}
