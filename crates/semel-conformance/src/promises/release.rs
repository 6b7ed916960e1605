//! T8: the owner releases a key, and says whether there may be an effect.

use semel_core::{Abandonment, Claim, Current, Effect, Owner, Release, Renewal, State, Store};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, other_nonce, other_token, success},
};

/// Releases as another owner, and asserts that the record does not change. Returns the current state.
async fn superseded(operation: &TestOperation<'_>, owner: Owner, effect: Effect) -> Current {
    let before = operation.record().await;
    let reply = operation.release(owner, effect).await;
    operation.assert_unchanged(&before, "a superseded release changes nothing").await;
    match reply {
        Release::Superseded(current) => current,
        reply => panic!("the key of another owner was released: {reply:?}"),
    }
}

/// Without an effect the key is free for any request, and token and attempts continue.
pub async fn a_release_without_effect_unpins(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.released(Effect::None).await;
    let record = operation.record().await;
    assert_eq!((record.state, record.fingerprint), (State::Open, None), "open and unpinned");
    assert_eq!((record.token, record.attempts), (1, 1), "a release keeps token and attempts");
    assert_eq!(record.nonce, Some(owner.nonce), "the nonce stays, to recognise a late copy");
    assert!(!record.dirty, "the owner attested that nothing happened");
    let lease = operation.with_other_fingerprint().granted().await;
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "the count continues");
    assert!(!lease.takeover, "a released key is no takeover");
    assert_eq!(
        operation.record().await.fingerprint,
        Some(operation.with_other_fingerprint().fingerprint),
        "pinned to the new fingerprint"
    );
}

/// With a possible effect the key stays pinned to its fingerprint.
pub async fn a_release_for_a_retry_stays_pinned(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.released(Effect::Possible).await;
    let record = operation.record().await;
    assert_eq!(record.state, State::Open, "a retry is open to every claim");
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "pinned: an effect is possible");
    assert!(record.dirty, "the owner did not attest that nothing happened");
    assert_eq!(
        operation.with_other_fingerprint().claim().await,
        Claim::Mismatch,
        "pinned to its fingerprint"
    );
    let lease = operation.granted().await;
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "the count continues");
    assert!(!lease.takeover, "a released key is no takeover");
}

/// After an earlier attempt that may have had an effect, a release without one does not unpin.
pub async fn a_dirty_key_is_not_unpinned(store: &dyn Store, time: &dyn Time) {
    let (retried, taken) = (TestOperation::new(store), TestOperation::new(store).lease(LEASE));
    retried.released(Effect::Possible).await;
    taken.lost(time).await;
    for operation in [retried, taken] {
        operation.released(Effect::None).await;
        assert_eq!(
            operation.with_other_fingerprint().claim().await,
            Claim::Mismatch,
            "an earlier effect is possible"
        );
        assert_eq!(operation.granted().await.attempt, 3, "the same request may run again");
    }
}

/// On hold, a release with a possible effect makes the key unknown.
pub async fn a_retry_on_hold_becomes_unknown(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let owner = operation.owned().await;
    assert_eq!(operation.release(owner, Effect::Possible).await, Release::Unknown, "Retry on hold");
    let record = operation.record().await;
    assert_eq!(
        (record.state, record.expires_at),
        (State::Unknown, None),
        "until an operator resolves it"
    );
    assert_eq!(record.fingerprint, Some(operation.fingerprint), "the fingerprint stays pinned");
    assert_eq!(operation.claim().await, Claim::Unknown, "an unknown key does not run again");
}

/// On hold, a release without effect opens the key.
pub async fn a_release_without_effect_opens_a_held_key(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    operation.released(Effect::None).await;
    assert_eq!(operation.record().await.state, State::Open, "nothing happened, nothing to hold");
    assert_eq!(operation.granted().await.attempt, 2, "every claim may be granted");
}

/// An unknown key is opened by its owner when it attests that nothing happened.
pub async fn an_unknown_key_is_released_without_effect(store: &dyn Store, time: &dyn Time) {
    let (lost, abandoned) =
        (TestOperation::new(store).lease(LEASE).hold(), TestOperation::new(store).hold());
    let lost_owner = lost.lost(time).await;
    assert_eq!(lost.claim().await, Claim::Unknown, "a lost owner on hold");
    let abandoned_owner = abandoned.unknown().await;
    for (operation, owner) in [(lost, lost_owner), (abandoned, abandoned_owner)] {
        let reply = operation.release(owner, Effect::None).await;
        assert_eq!(reply, Release::Open, "the owner attests that nothing happened");
        assert!(operation.record().await.expires_at.is_some(), "a released record expires");
        assert_eq!(
            operation.with_other_fingerprint().granted().await.owner.token,
            2,
            "every claim may be granted"
        );
    }
}

/// An unknown key is not opened for a retry.
pub async fn an_unknown_key_is_not_released_for_a_retry(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    let owner = operation.unknown().await;
    let current = superseded(&operation, owner, Effect::Possible).await;
    assert_eq!(current, Current::Unknown, "an effect is possible, so an operator decides");
}

/// A release after the end of the lease is accepted, if there was no takeover.
pub async fn a_late_release_counts(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    assert_eq!(
        operation.release(owner, Effect::None).await,
        Release::Open,
        "there was no takeover"
    );
    assert!(!operation.granted().await.takeover, "a released key is no takeover");
}

/// Only the owner can release a key.
pub async fn only_the_owner_releases(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    let owner = operation.clone().lease(LONG).owned().await;
    for stranger in [stale, other_nonce(owner), other_token(owner)] {
        for effect in [Effect::None, Effect::Possible] {
            let current = superseded(&operation, stranger, effect).await;
            assert!(matches!(current, Current::InProgress { .. }), "owned, not {current:?}");
        }
    }
    assert_eq!(operation.release(owner, Effect::None).await, Release::Open, "the owner releases");
}

/// The former owner of a released key is superseded in every step.
pub async fn a_released_key_has_no_owner(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.released(Effect::Possible).await;
    let before = operation.record().await;
    assert_eq!(operation.renew(owner).await, Renewal::Lost, "renewed after the release");
    let reply = operation.abandon(owner, LONG).await;
    assert_eq!(reply, Abandonment::Superseded(Current::Open), "abandoned after the release");
    let current = superseded(&operation, owner, Effect::None).await;
    assert_eq!(current, Current::Open, "a second release must not unpin");
    operation.assert_unchanged(&before, "a former owner changed a released key").await;
}

/// A late copy of a released claim is answered Released, and no claim is granted.
pub async fn a_late_copy_of_a_released_claim_is_not_granted(store: &dyn Store, _: &dyn Time) {
    for effect in [Effect::None, Effect::Possible] {
        let operation = TestOperation::new(store);
        let owner = operation.released(effect).await;
        let before = operation.record().await;
        let reply = operation.claim_as(owner).await;
        assert_eq!(reply, Claim::Released, "a late copy of a released claim");
        operation
            .assert_unchanged(&before, "a late copy of a released claim changes nothing")
            .await;
        assert_eq!(operation.granted().await.owner.token, 2, "a new claim is granted");
    }
}

/// At the cap, a late copy of a released claim does not make the key dead.
pub async fn a_late_copy_does_not_make_a_key_dead(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    let owner = operation.released(Effect::None).await;
    assert_eq!(operation.claim_as(owner).await, Claim::Released, "a late copy at the cap");
    assert_eq!(operation.record().await.state, State::Open, "a late copy made the key dead");
}

/// A completed key cannot be released.
pub async fn a_completed_key_is_not_released(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.completed(&success("done")).await;
    for effect in [Effect::None, Effect::Possible] {
        let current = superseded(&operation, owner, effect).await;
        assert!(matches!(current, Current::Completed(_)), "completed, not {current:?}");
    }
}

/// A dead key cannot be released, not even by its lost owner.
pub async fn a_dead_key_is_not_released(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).cap(1);
    let owner = operation.lost(time).await;
    assert_eq!(operation.claim().await, Claim::Dead, "lost at the cap");
    assert_eq!(superseded(&operation, owner, Effect::None).await, Current::Dead, "out of attempts");
}

/// The release of a key without a record is answered Missing and makes no record.
pub async fn a_release_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stranger = Owner { key: operation.key, nonce: operation.request().nonce, token: 1 };
    let reply = operation.release(stranger, Effect::None).await;
    assert_eq!(reply, Release::Missing, "there was nothing to release");
    assert_eq!(operation.get().await, None, "a release made a record");
}
