//! T11 and T13: an operator drops what a record holds, or the record itself.

use semel_core::{
    Claim, Completion, Current, Effect, Erasure, Forgetting, Labels, Renewal, State, Store,
};

use crate::{
    LEASE, Time,
    work::{LONG, Work, said},
};

/// Erases the key and looks at what is left.
async fn erased(work: &Work<'_>) {
    let before = work.record().await;
    assert_eq!(work.erase().await, Erasure::Erased, "a record was not erased");
    let left = work.record().await;
    assert_eq!(left.state, State::Erased, "a tombstone is left");
    assert_eq!(left.outcome, None, "the outcome was kept");
    assert_eq!((left.fingerprint, left.nonce), (None, None), "fingerprint or nonce was kept");
    assert!(left.labels.is_none(), "the labels were kept");
    assert_eq!(left.token, before.token, "a tombstone keeps the token");
    assert!(left.expires_at.is_some(), "a tombstone is kept for the retention, not for ever");
    assert_eq!(work.claim().await, Claim::Gone, "an erased key is gone");
    assert_eq!(work.other().claim().await, Claim::Gone, "no fingerprint is left to differ from");
}

/// In every state a record is erased, and a tombstone still stops duplicates.
pub async fn any_record_is_erased(store: &dyn Store, _: &dyn Time) {
    let new = || Work::new(store).labels(Labels::new("ns", "me", "charge", "order-42"));
    let [live, done, open, unknown, dead] = [new(), new(), new(), new().hold(), new().cap(1)];
    live.owned().await;
    done.completed(&said("secret")).await;
    open.released(Effect::Possible).await;
    unknown.unknown().await;
    dead.dead().await;
    for work in [live, done, open, unknown, dead] {
        erased(&work).await;
        erased(&work).await;
    }
}

/// The owner of an erased key can do nothing, and is told why.
pub async fn the_owner_of_an_erased_key_is_superseded(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.erase().await;
    let answer = work.complete(owner, &said("secret")).await;
    assert_eq!(answer, Completion::Superseded(Current::Erased), "an erased key was completed");
    assert_eq!(work.renew(owner).await, Renewal::Lost, "an erased key was renewed");
    assert_eq!(work.claim_as(owner).await, Claim::Gone, "an erased key was granted again");
    assert_eq!(work.record().await.outcome, None, "an outcome came back after the erasure");
}

/// Erasing a key that has no record says so and makes none.
pub async fn an_erasure_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    assert_eq!(work.erase().await, Erasure::Missing, "there was nothing to erase");
    assert_eq!(work.get().await, None, "an erasure made a record");
    assert_eq!(work.granted().await.owner.token, 1, "the first claim is a first claim");
}

/// Completed, dead and released keys are forgotten; the next claim is a first one.
pub async fn what_nobody_owns_is_forgotten(store: &dyn Store, _: &dyn Time) {
    let [done, open, dead] = [Work::new(store), Work::new(store), Work::new(store).cap(1)];
    done.completed(&said("done")).await;
    open.released(Effect::Possible).await;
    dead.dead().await;
    for work in [done, open, dead] {
        assert_eq!(work.forget().await, Forgetting::Forgotten, "nobody owned it");
        assert_eq!(work.get().await, None, "forgotten, but still there");
        let lease = work.other().granted().await;
        assert_eq!((lease.owner.token, lease.attempt), (1, 1), "a forgotten key begins anew");
    }
}

/// Forgetting what is owned, unknown or erased could run its work twice, and is refused.
pub async fn what_may_have_an_effect_is_not_forgotten(store: &dyn Store, time: &dyn Time) {
    let [live, erased, unknown] = [Work::new(store), Work::new(store), Work::new(store).hold()];
    let lapsed = Work::new(store).lease(LEASE);
    live.owned().await;
    erased.owned().await;
    erased.erase().await;
    unknown.unknown().await;
    lapsed.lapsed(time).await;
    let works = [
        (live, State::InProgress),
        (erased, State::Erased),
        (unknown, State::Unknown),
        (lapsed, State::InProgress),
    ];
    for (work, state) in works {
        let before = work.record().await;
        assert_eq!(work.forget().await, Forgetting::Refused(state), "forgotten in {state:?}");
        work.unchanged(&before, "a refused forgetting changes nothing").await;
    }
}

/// Forgetting a key that has no record says so.
pub async fn nothing_is_forgotten_twice(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    assert_eq!(work.forget().await, Forgetting::Missing, "there was nothing to forget");
    let owner = work.completed(&said("done")).await;
    work.forget().await;
    assert_eq!(work.forget().await, Forgetting::Missing, "forgotten already");
    let answer = work.complete(owner, &said("again")).await;
    assert_eq!(answer, Completion::Missing, "a completion revived a forgotten key");
    assert_eq!(work.renew_within(owner, LONG).await, Renewal::Lost, "nothing is left to renew");
}
