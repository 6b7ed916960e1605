//! T11 and T13: an operator erases the content of a record, or removes the record.

use semel_core::{
    Claim, Completion, Current, Effect, Erasure, Forgetting, Labels, Renewal, State, Store,
};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, success},
};

/// Erases the key and checks the tombstone.
async fn erased(operation: &TestOperation<'_>) {
    let before = operation.record().await;
    assert_eq!(operation.erase().await, Erasure::Erased, "a record was not erased");
    let left = operation.record().await;
    assert_eq!(left.state, State::Erased, "a tombstone is left");
    assert_eq!(left.outcome, None, "the outcome was kept");
    assert_eq!((left.fingerprint, left.nonce), (None, None), "fingerprint or nonce was kept");
    assert!(left.labels.is_none(), "the labels were kept");
    assert_eq!(left.token, before.token, "a tombstone keeps the token");
    assert!(left.expires_at.is_some(), "a tombstone expires after the retention");
    assert_eq!(operation.claim().await, Claim::Gone, "an erased key is gone");
    assert_eq!(
        operation.with_other_fingerprint().claim().await,
        Claim::Gone,
        "no fingerprint is left to differ from"
    );
}

/// A record can be erased in every state, and its tombstone still stops duplicates.
pub async fn any_record_is_erased(store: &dyn Store, _: &dyn Time) {
    let new = || TestOperation::new(store).labels(Labels::new("ns", "me", "charge", "order-42"));
    let [live, done, open, unknown, dead] = [new(), new(), new(), new().hold(), new().cap(1)];
    live.owned().await;
    done.completed(&success("secret")).await;
    open.released(Effect::Possible).await;
    unknown.unknown().await;
    dead.dead().await;
    for operation in [live, done, open, unknown, dead] {
        erased(&operation).await;
        erased(&operation).await;
    }
}

/// The owner of an erased key is superseded in every step.
pub async fn the_owner_of_an_erased_key_is_superseded(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.erase().await;
    let reply = operation.complete(owner, &success("secret")).await;
    assert_eq!(reply, Completion::Superseded(Current::Erased), "an erased key was completed");
    assert_eq!(operation.renew(owner).await, Renewal::Lost, "an erased key was renewed");
    assert_eq!(operation.claim_as(owner).await, Claim::Gone, "an erased key was granted again");
    assert_eq!(operation.record().await.outcome, None, "an outcome came back after the erasure");
}

/// The erasure of a key without a record is answered Missing and makes no record.
pub async fn an_erasure_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    assert_eq!(operation.erase().await, Erasure::Missing, "there was nothing to erase");
    assert_eq!(operation.get().await, None, "an erasure made a record");
    assert_eq!(operation.granted().await.owner.token, 1, "the first claim is a first claim");
}

/// Completed, dead and released keys are forgotten; the next claim is a first one.
pub async fn a_key_without_an_owner_is_forgotten(store: &dyn Store, _: &dyn Time) {
    let [done, open, dead] =
        [TestOperation::new(store), TestOperation::new(store), TestOperation::new(store).cap(1)];
    done.completed(&success("done")).await;
    open.released(Effect::Possible).await;
    dead.dead().await;
    for operation in [done, open, dead] {
        assert_eq!(operation.forget().await, Forgetting::Forgotten, "it had no owner");
        assert_eq!(operation.get().await, None, "forgotten, but still there");
        let lease = operation.with_other_fingerprint().granted().await;
        assert_eq!(
            (lease.owner.token, lease.attempt),
            (1, 1),
            "the next claim of a forgotten key is a first one"
        );
    }
}

/// A key that is owned, unknown or erased is not forgotten, because its work could run twice.
pub async fn a_key_that_may_have_an_effect_is_not_forgotten(store: &dyn Store, time: &dyn Time) {
    let [live, erased, unknown] =
        [TestOperation::new(store), TestOperation::new(store), TestOperation::new(store).hold()];
    let lapsed = TestOperation::new(store).lease(LEASE);
    live.owned().await;
    erased.owned().await;
    erased.erase().await;
    unknown.unknown().await;
    lapsed.lapsed(time).await;
    let operations = [
        (live, State::InProgress),
        (erased, State::Erased),
        (unknown, State::Unknown),
        (lapsed, State::InProgress),
    ];
    for (operation, state) in operations {
        let before = operation.record().await;
        assert_eq!(operation.forget().await, Forgetting::Refused(state), "forgotten in {state:?}");
        operation.assert_unchanged(&before, "a refused forgetting changes nothing").await;
    }
}

/// Forgetting a key without a record is answered Missing.
pub async fn nothing_is_forgotten_twice(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    assert_eq!(operation.forget().await, Forgetting::Missing, "there was nothing to forget");
    let owner = operation.completed(&success("done")).await;
    operation.forget().await;
    assert_eq!(operation.forget().await, Forgetting::Missing, "forgotten already");
    let reply = operation.complete(owner, &success("again")).await;
    assert_eq!(reply, Completion::Missing, "a completion revived a forgotten key");
    assert_eq!(
        operation.renew_within(owner, LONG).await,
        Renewal::Lost,
        "nothing is left to renew"
    );
}
