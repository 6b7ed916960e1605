//! T9: the owner gives up without knowing what happened.

use std::time::Duration;

use semel_core::{Abandonment, Claim, Completion, Current, Effect, Owner, Release, State, Store};

use crate::{
    LEASE, Time,
    work::{LONG, Work, other_nonce, other_token, said},
};

/// Under Rerun an abandoned key is held back for the backoff, then granted to the next.
pub async fn an_abandoned_key_lapses_after_its_backoff(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    assert_eq!(work.abandon(owner, LEASE).await, Abandonment::Lapsing, "abandoned under Rerun");
    let Claim::Busy { remaining } = work.claim().await else {
        panic!("a contender was not held back for the backoff");
    };
    assert!(remaining <= LEASE, "the lease ends with the backoff, not in {remaining:?}");
    time.pass(LEASE).await;
    let lease = work.granted().await;
    assert!(!lease.takeover, "an owner that gave up was not lost");
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "it is the next attempt");
    let record = work.record().await;
    assert!(record.dirty && !record.abandoned, "dirty, and the new owner gave nothing up");
}

/// Without a backoff an abandoned key is free at once.
pub async fn an_abandoned_key_without_backoff_is_free(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.abandon(owner, Duration::ZERO).await;
    assert_eq!(work.granted().await.attempt, 2, "no backoff, and still not free");
}

/// A backoff may be longer than what was left of the lease.
pub async fn a_backoff_may_outlast_the_lease(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let owner = work.owned().await;
    work.abandon(owner, LONG).await;
    time.pass(LEASE).await;
    let answer = work.claim().await;
    assert!(matches!(answer, Claim::Busy { .. }), "the backoff was cut short: {answer:?}");
}

/// Abandoning is written in the record, which otherwise stays the owner's.
pub async fn an_abandoned_key_keeps_its_record(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.abandon(owner, LONG).await;
    let record = work.record().await;
    assert!(record.abandoned, "the record does not say that the owner gave up");
    assert_eq!(record.state, State::InProgress, "under Rerun the key waits to be taken over");
    assert_eq!(record.fingerprint, Some(work.fingerprint), "what was asked stays pinned");
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the pair is kept");
}

/// On hold an abandoned key is unknown at once.
pub async fn an_abandoned_key_on_hold_is_unknown(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store).hold();
    let owner = work.owned().await;
    assert_eq!(work.abandon(owner, LONG).await, Abandonment::Unknown, "abandoned on hold");
    let record = work.record().await;
    assert_eq!(
        (record.state, record.expires_at),
        (State::Unknown, None),
        "until an operator comes"
    );
    assert_eq!(work.claim().await, Claim::Unknown, "nobody runs it again");
}

/// Who abandoned a key may still complete it, as long as nobody took over.
pub async fn an_abandoned_key_can_be_completed(store: &dyn Store, _: &dyn Time) {
    for work in [Work::new(store), Work::new(store).hold()] {
        let owner = work.owned().await;
        work.abandon(owner, Duration::ZERO).await;
        let answer = work.complete(owner, &said("after all")).await;
        assert_eq!(answer, Completion::Recorded, "the owner found out what happened");
        assert!(matches!(work.claim().await, Claim::Replay(_)), "recorded, but not replayed");
    }
}

/// Who abandoned a key may still give it back, as long as nobody took over.
pub async fn an_abandoned_key_can_be_released(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.abandon(owner, LONG).await;
    assert_eq!(work.release(owner, Effect::None).await, Release::Open, "nothing had happened");
    let lease = work.granted().await;
    assert!(!lease.takeover, "given back is not lost");
    assert!(!work.record().await.abandoned, "the new owner gave nothing up");
}

/// Nobody but the owner abandons a key.
pub async fn only_the_owner_abandons(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let stale = work.lapsed(time).await;
    let owner = work.clone().lease(LONG).owned().await;
    let before = work.record().await;
    for stranger in [stale, other_nonce(owner), other_token(owner)] {
        let answer = work.abandon(stranger, Duration::ZERO).await;
        let superseded = matches!(answer, Abandonment::Superseded(Current::InProgress { remaining }) if !remaining.is_zero());
        assert!(superseded, "a stranger's abandonment was answered {answer:?}");
    }
    work.unchanged(&before, "a stranger's abandonment changes nothing").await;
}

/// Only work in progress is abandoned.
pub async fn what_has_ended_is_not_abandoned(store: &dyn Store, _: &dyn Time) {
    let [done, open, unknown] = [Work::new(store), Work::new(store), Work::new(store).hold()];
    let owner = done.completed(&said("done")).await;
    let answer = done.abandon(owner, LONG).await;
    assert!(
        matches!(answer, Abandonment::Superseded(Current::Completed(_))),
        "a completed key was abandoned: {answer:?}"
    );
    let owner = open.released(Effect::None).await;
    let answer = open.abandon(owner, LONG).await;
    assert_eq!(answer, Abandonment::Superseded(Current::Open), "a released key was abandoned");
    let owner = unknown.unknown().await;
    let answer = unknown.abandon(owner, LONG).await;
    assert_eq!(answer, Abandonment::Superseded(Current::Unknown), "abandoned twice on hold");
}

/// Abandoning a key that has no record says so and makes none.
pub async fn an_abandonment_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let stranger = Owner { key: work.key, nonce: work.request().nonce, token: 1 };
    assert_eq!(work.abandon(stranger, LONG).await, Abandonment::Missing, "nothing to abandon");
    assert_eq!(work.get().await, None, "an abandonment made a record");
}
