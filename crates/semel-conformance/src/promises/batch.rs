//! The steps in batches: the same as single steps one after the other.

use std::{collections::HashSet, iter, time::Duration};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, Current, Effect, Owner, Release,
    ReleaseRequest, RenewRequest, Renewal, Result, State, Store,
};

use crate::{
    Time,
    operation::{LONG, TestOperation, expect_ok, other_nonce, success},
};

fn all<T>(step: &str, replies: Vec<Result<T>>) -> Vec<T> {
    replies.into_iter().map(|reply| expect_ok(step, reply)).collect()
}

async fn claim_many(store: &dyn Store, requests: &[ClaimRequest]) -> Vec<Claim> {
    let replies = all("claim_many", store.claim_many(requests).await);
    assert_eq!(replies.len(), requests.len(), "one answer for each request");
    replies
}

async fn owners(operations: &[TestOperation<'_>]) -> Vec<Owner> {
    let mut owners = Vec::new();
    for operation in operations {
        owners.push(operation.owned().await);
    }
    owners
}

fn operations(store: &dyn Store, count: usize) -> Vec<TestOperation<'_>> {
    iter::repeat_with(|| TestOperation::new(store)).take(count).collect()
}

/// The replies of a batch are in the order of its requests, in any order of keys.
pub async fn claims_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let operations = operations(store, 300);
    let requests: Vec<_> = operations.iter().map(TestOperation::request).collect();
    for (request, reply) in requests.iter().zip(claim_many(store, &requests).await) {
        let Claim::Granted(lease) = reply else { panic!("a first claim was {reply:?}") };
        assert_eq!(lease.owner.key, request.key, "an answer went to another key's claim");
        assert_eq!(lease.owner.nonce, request.nonce, "an answer went to another claim");
    }
    for operation in &operations[..10] {
        assert_eq!(operation.record().await.state, State::InProgress, "granted, but not written");
    }
}

/// Each claim of a batch has its own reply, and a refusal does not affect the others.
pub async fn a_refused_claim_does_not_affect_its_batch(store: &dyn Store, _: &dyn Time) {
    let [done, busy, unknown, fresh, pinned] = [
        TestOperation::new(store),
        TestOperation::new(store),
        TestOperation::new(store).hold(),
        TestOperation::new(store),
        TestOperation::new(store),
    ];
    done.completed(&success("done")).await;
    busy.owned().await;
    unknown.unknown().await;
    pinned.owned().await;
    let requests = [
        done.request(),
        pinned.with_other_fingerprint().request(),
        fresh.request(),
        busy.request(),
        unknown.request(),
    ];
    let replies = claim_many(store, &requests).await;
    assert!(matches!(replies[0], Claim::Replay(_)), "completed: {:?}", replies[0]);
    assert_eq!(replies[1], Claim::Mismatch, "pinned to another fingerprint");
    assert!(matches!(replies[2], Claim::Granted(_)), "fresh: {:?}", replies[2]);
    assert!(matches!(replies[3], Claim::Busy { .. }), "owned: {:?}", replies[3]);
    assert_eq!(replies[4], Claim::Unknown, "on hold");
}

/// Of two claims of one key in one batch, the first is granted and the second is busy.
pub async fn one_of_two_claims_of_a_key_in_a_batch_is_granted(store: &dyn Store, _: &dyn Time) {
    let (operation, between) = (TestOperation::new(store), TestOperation::new(store));
    let requests = [
        operation.request(),
        between.request(),
        operation.request(),
        operation.with_other_fingerprint().request(),
    ];
    let replies = claim_many(store, &requests).await;
    let Claim::Granted(lease) = &replies[0] else {
        panic!("the first of two claims: {:?}", replies[0])
    };
    assert_eq!(lease.owner.nonce, requests[0].nonce, "the first of two claims is the owner");
    assert!(
        matches!(replies[1], Claim::Granted(_)),
        "the claim of another key in between: {:?}",
        replies[1]
    );
    assert!(matches!(replies[2], Claim::Busy { .. }), "the second of two claims: {:?}", replies[2]);
    assert_eq!(replies[3], Claim::Mismatch, "a claim of the same key with another fingerprint");
    assert_eq!(operation.record().await.attempts, 1, "one of the claims is granted");
}

/// One claim twice in one batch is one grant.
pub async fn a_claim_twice_in_a_batch_is_one_grant(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let request = operation.request();
    let replies = claim_many(store, &[request.clone(), request]).await;
    assert!(matches!(replies[0], Claim::Granted(_)), "the first copy: {:?}", replies[0]);
    assert_eq!(replies[0], replies[1], "two copies of one claim are one grant");
    assert_eq!(operation.record().await.attempts, 1, "a copy is no attempt");
}

/// Of several claims of one key in one batch, each sees the record that the earlier ones left.
pub async fn a_claim_in_a_batch_sees_the_claims_before_it(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    let owner = operation.owned().await;
    operation.abandon(owner, Duration::ZERO).await;
    let late = ClaimRequest { nonce: owner.nonce, ..operation.request() };
    let replies = claim_many(store, &[operation.request(), late]).await;
    assert_eq!(replies, [Claim::Dead, Claim::Dead], "the first claim used up the last attempt");
    let operation = TestOperation::new(store);
    let owner = operation.released(Effect::None).await;
    let late = ClaimRequest { nonce: owner.nonce, ..operation.request() };
    let replies = claim_many(store, &[operation.request(), late]).await;
    assert!(matches!(replies[0], Claim::Granted(_)), "a released key: {:?}", replies[0]);
    assert!(matches!(replies[1], Claim::Busy { .. }), "behind its new owner: {:?}", replies[1]);
}

/// In a batch of renewals, only those of owners are extended.
pub async fn renewals_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let operations = operations(store, 4);
    let mut owners = owners(&operations).await;
    owners[1] = other_nonce(owners[1]);
    owners[2].key = TestOperation::new(store).key;
    owners.push(owners[0]);
    let renew = |&owner: &Owner| RenewRequest::new(owner, LONG);
    let requests: Vec<_> = owners.iter().map(renew).collect();
    let replies = all("renew_many", store.renew_many(&requests).await);
    let (extended, lost) = (Renewal::Extended, Renewal::Lost);
    assert_eq!(replies, [extended, lost, lost, extended, extended], "answers in order");
}

/// Completions in a batch are independent of each other, and the first outcome of a key is kept.
pub async fn completions_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let operations = operations(store, 3);
    let mut owners = owners(&operations).await;
    owners[1] = other_nonce(owners[1]);
    owners.push(owners[0]);
    owners.push(Owner { key: TestOperation::new(store).key, ..owners[0] });
    let texts = ["first", "stranger", "other", "second", "without record"];
    let complete = |(&owner, text)| CompleteRequest { owner, outcome: success(text) };
    let requests: Vec<_> = owners.iter().zip(texts).map(complete).collect();
    let replies = all("complete_many", store.complete_many(&requests).await);
    assert_eq!(replies.len(), requests.len(), "one answer for each request");
    let superseded = matches!(replies[1], Completion::Superseded(Current::InProgress { .. }));
    assert!(superseded, "a stranger: {:?}", replies[1]);
    for recorded in [0, 2, 3] {
        assert_eq!(replies[recorded], Completion::Recorded, "answer {recorded}");
    }
    assert_eq!(replies[4], Completion::Missing, "a key without a record");
    assert_eq!(
        operations[0].record().await.outcome,
        Some(success("first")),
        "the first outcome is kept"
    );
    assert_eq!(operations[1].record().await.outcome, None, "a stranger's outcome was recorded");
    assert_eq!(
        operations[2].record().await.outcome,
        Some(success("other")),
        "the outcome of another key in the batch"
    );
}

/// Releases in a batch are independent of each other, and each has its own effect.
pub async fn releases_are_answered_in_order(store: &dyn Store, _: &dyn Time) {
    let operations = [
        TestOperation::new(store),
        TestOperation::new(store),
        TestOperation::new(store).hold(),
        TestOperation::new(store),
    ];
    let mut owners = owners(&operations).await;
    owners[3] = other_nonce(owners[3]);
    owners.push(owners[0]);
    let effects =
        [Effect::None, Effect::Possible, Effect::Possible, Effect::None, Effect::Possible];
    let release = |(&owner, effect)| ReleaseRequest { owner, effect };
    let requests: Vec<_> = owners.iter().zip(effects).map(release).collect();
    let replies = all("release_many", store.release_many(&requests).await);
    assert_eq!(replies.len(), requests.len(), "one answer for each request");
    assert_eq!(replies[..3], [Release::Open, Release::Open, Release::Unknown], "the owners");
    let superseded = matches!(replies[3], Release::Superseded(Current::InProgress { .. }));
    assert!(superseded, "a stranger: {:?}", replies[3]);
    assert_eq!(replies[4], Release::Superseded(Current::Open), "released already");
    assert_eq!(operations[0].record().await.fingerprint, None, "no effect unpins");
    assert!(operations[1].record().await.fingerprint.is_some(), "a retry stays pinned");
}

/// An empty batch has no replies.
pub async fn an_empty_batch_is_answered(store: &dyn Store, _: &dyn Time) {
    assert!(store.claim_many(&[]).await.is_empty(), "answers to no claims");
    assert!(store.renew_many(&[]).await.is_empty(), "answers to no renewals");
    assert!(store.complete_many(&[]).await.is_empty(), "answers to no completions");
    assert!(store.release_many(&[]).await.is_empty(), "answers to no releases");
}

/// Records are claimed, renewed, completed and replayed in batches.
pub async fn a_batch_lives_like_single_steps(store: &dyn Store, _: &dyn Time) {
    let operations = operations(store, 50);
    let claims: Vec<_> = operations.iter().map(TestOperation::request).collect();
    let owner = |claim| match claim {
        Claim::Granted(lease) => lease.owner,
        reply => panic!("a first claim was {reply:?}"),
    };
    let owners: Vec<Owner> = claim_many(store, &claims).await.into_iter().map(owner).collect();
    let renew = |&owner: &Owner| RenewRequest::new(owner, LONG);
    let renewals: Vec<_> = owners.iter().map(renew).collect();
    let renewed = all("renew_many", store.renew_many(&renewals).await);
    assert_eq!(HashSet::from_iter(renewed), HashSet::from([Renewal::Extended]), "all renewed");
    let complete = |&owner: &Owner| CompleteRequest { owner, outcome: success("done") };
    let completions: Vec<_> = owners.iter().map(complete).collect();
    for reply in all("complete_many", store.complete_many(&completions).await) {
        assert_eq!(reply, Completion::Recorded, "all recorded");
    }
    let again: Vec<_> = operations.iter().map(TestOperation::request).collect();
    for reply in claim_many(store, &again).await {
        assert!(matches!(reply, Claim::Replay(_)), "completed, but {reply:?}");
    }
}
