//! T9: the owner gives up without knowing what happened.

use std::time::Duration;

use semel_core::{Abandonment, Claim, Completion, Current, Effect, Owner, Release, State, Store};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, other_nonce, other_token, success},
};

/// Under Rerun an abandoned key is held back for the backoff, then granted to the next.
pub async fn an_abandoned_key_lapses_after_its_backoff(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    assert_eq!(
        operation.abandon(owner, LEASE).await,
        Abandonment::Lapsing,
        "abandoned under Rerun"
    );
    let Claim::Busy { remaining } = operation.claim().await else {
        panic!("a contender was not held back for the backoff");
    };
    assert!(remaining <= LEASE, "the lease ends with the backoff, not in {remaining:?}");
    time.pass(LEASE).await;
    let lease = operation.granted().await;
    assert!(!lease.takeover, "an owner that gave up was not lost");
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "it is the next attempt");
    let record = operation.record().await;
    assert!(record.dirty && !record.abandoned, "dirty, and the new owner gave nothing up");
}

/// Without a backoff an abandoned key is free at once.
pub async fn an_abandoned_key_without_backoff_is_free(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, Duration::ZERO).await;
    assert_eq!(operation.granted().await.attempt, 2, "no backoff, and still not free");
}

/// A backoff may be longer than what was left of the lease.
pub async fn a_backoff_may_outlast_the_lease(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    time.pass(LEASE).await;
    let reply = operation.claim().await;
    assert!(matches!(reply, Claim::Busy { .. }), "the backoff was cut short: {reply:?}");
}

/// Abandoning is written in the record, which otherwise stays the owner's.
pub async fn an_abandoned_key_keeps_its_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    let record = operation.record().await;
    assert!(record.abandoned, "the record does not say that the owner gave up");
    assert_eq!(record.state, State::InProgress, "under Rerun the key waits to be taken over");
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "what was asked stays pinned");
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the pair is kept");
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
        "until an operator comes"
    );
    assert_eq!(operation.claim().await, Claim::Unknown, "nobody runs it again");
}

/// Who abandoned a key may still complete it, as long as nobody took over.
pub async fn an_abandoned_key_can_be_completed(store: &dyn Store, _: &dyn Time) {
    for operation in [TestOperation::new(store), TestOperation::new(store).hold()] {
        let owner = operation.owned().await;
        operation.abandon(owner, Duration::ZERO).await;
        let reply = operation.complete(owner, &success("after all")).await;
        assert_eq!(reply, Completion::Recorded, "the owner found out what happened");
        assert!(matches!(operation.claim().await, Claim::Replay(_)), "recorded, but not replayed");
    }
}

/// Who abandoned a key may still give it back, as long as nobody took over.
pub async fn an_abandoned_key_can_be_released(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    assert_eq!(operation.release(owner, Effect::None).await, Release::Open, "nothing had happened");
    let lease = operation.granted().await;
    assert!(!lease.takeover, "given back is not lost");
    assert!(!operation.record().await.abandoned, "the new owner gave nothing up");
}

/// Nobody but the owner abandons a key.
pub async fn only_the_owner_abandons(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lapsed(time).await;
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

/// Abandoning a key that has no record says so and makes none.
pub async fn an_abandonment_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stranger = Owner { key: operation.key, nonce: operation.request().nonce, token: 1 };
    assert_eq!(operation.abandon(stranger, LONG).await, Abandonment::Missing, "nothing to abandon");
    assert_eq!(operation.get().await, None, "an abandonment made a record");
}
