//! Races: every step is atomic per key.

use std::{
    collections::HashSet,
    iter,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, Current, Effect, Lease, Owner, Renewal,
    Result, Store,
};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, expect_ok, success},
    parallel::in_parallel,
};

/// Callers of a race.
const MANY: usize = 64;

/// The leases among the replies to claims, and the other replies.
fn split(claims: Vec<Claim>) -> (Vec<Lease>, Vec<Claim>) {
    let (mut leases, mut others) = (Vec::new(), Vec::new());
    for claim in claims {
        match claim {
            Claim::Granted(lease) => leases.push(lease),
            other => others.push(other),
        }
    }
    (leases, others)
}

/// Many claims at once: one is granted, the others are busy.
async fn one_of_many(operation: &TestOperation<'_>) -> Lease {
    let (leases, others) =
        split(in_parallel(vec![operation; MANY].iter().map(|w| w.claim()).collect()).await);
    assert_eq!(leases.len(), 1, "one of {MANY} claims is granted");
    let busy = others.iter().all(|claim| matches!(claim, Claim::Busy { .. }));
    assert!(busy, "the others are busy: {others:?}");
    assert_eq!(operation.record().await.nonce, Some(leases[0].owner.nonce), "the record's owner");
    leases[0]
}

/// Of many first claims one is granted.
pub async fn one_of_many_first_claims_is_granted(store: &dyn Store, _: &dyn Time) {
    let lease = one_of_many(&TestOperation::new(store)).await;
    assert_eq!((lease.owner.token, lease.attempt), (1, 1), "the first grant is number one");
}

/// Of many claims of a lapsed lease one takes over.
pub async fn one_of_many_takes_over(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lost(time).await;
    let lease = one_of_many(&operation.lease(LONG)).await;
    assert!(lease.takeover, "the owner was lost");
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "one takeover, one attempt");
}

/// Of many claims of a released key one is granted.
pub async fn one_of_many_is_granted_a_released_key(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.released(Effect::Possible).await;
    let lease = one_of_many(&operation).await;
    assert_eq!((lease.owner.token, lease.attempt), (2, 2), "one grant, one attempt");
}

/// Copies of one claim at once are one grant.
pub async fn copies_of_one_claim_are_one_grant(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let request = operation.request();
    let copies = iter::repeat_with(|| store.claim(&request)).take(MANY).collect();
    let claims =
        in_parallel(copies).await.into_iter().map(|claim| expect_ok("claim", claim)).collect();
    let (leases, others) = split(claims);
    assert!(others.is_empty(), "a copy of a granted claim was {others:?}");
    assert_eq!(HashSet::<Lease>::from_iter(leases).len(), 1, "copies are one grant");
    assert_eq!(operation.record().await.attempts, 1, "copies are one attempt");
}

/// Of two concurrent completions of one owner both succeed, and one outcome is kept.
pub async fn one_of_two_outcomes_stands(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let outcomes = [success("one"), success("other")];
    let calls = (0..MANY).map(|n| operation.complete(owner, &outcomes[n % 2])).collect();
    for reply in in_parallel(calls).await {
        assert_eq!(reply, Completion::Recorded, "the owner's own completion");
    }
    let replays: HashSet<_> = in_parallel((0..MANY).map(|_| operation.claim()).collect())
        .await
        .into_iter()
        .map(|claim| match claim {
            Claim::Replay(replay) => replay.outcome,
            claim => panic!("completed, but {claim:?}"),
        })
        .collect();
    assert_eq!(replays.len(), 1, "one outcome is replayed to every claim");
    assert!(
        replays.iter().all(|seen| outcomes.contains(seen)),
        "an outcome that was never recorded"
    );
}

/// A stale and a fresh owner complete concurrently, and the fresh owner's outcome is recorded.
pub async fn a_stale_owner_never_wins(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stale = operation.owned().await;
    operation.abandon(stale, Duration::ZERO).await;
    let fresh = operation.owned().await;
    let (wrong, right) = (success("stale"), success("fresh"));
    let call = |n| match n % 2 {
        0 => operation.complete(stale, &wrong),
        _ => operation.complete(fresh, &right),
    };
    for (n, reply) in in_parallel((0..MANY).map(call).collect()).await.into_iter().enumerate() {
        let fine = match n % 2 {
            0 => matches!(reply, Completion::Superseded(_)),
            _ => reply == Completion::Recorded,
        };
        assert!(fine, "completion {n} (odd ones are the owner's) was {reply:?}");
    }
    assert_eq!(operation.record().await.outcome, Some(right), "the stale owner won");
}

/// The reply to a caller in a race of different steps.
#[derive(Debug)]
enum RaceReply {
    Claim(Claim),
    Completion(Completion),
    Renewal(Renewal),
}

/// A lost owner completes while others claim: its outcome is recorded or its key is taken over, never both.
pub async fn completion_and_takeover_exclude_each_other(store: &dyn Store, _: &dyn Time) {
    for _ in 0..8 {
        let operation = TestOperation::new(store);
        let owner = operation.owned().await;
        operation.abandon(owner, Duration::ZERO).await;
        let outcome = success("late");
        let call = async |n| match n {
            0 => RaceReply::Completion(operation.complete(owner, &outcome).await),
            _ => RaceReply::Claim(operation.claim().await),
        };
        let mut replies = in_parallel((0..16).map(|n| Box::pin(call(n))).collect()).await;
        let RaceReply::Completion(completion) = replies.remove(0) else {
            panic!("answers in order")
        };
        let granted =
            replies.iter().filter(|t| matches!(t, RaceReply::Claim(Claim::Granted(_)))).count();
        match completion {
            Completion::Recorded => assert_eq!(granted, 0, "recorded and taken over"),
            Completion::Superseded(Current::InProgress { .. }) => {
                assert_eq!(granted, 1, "superseded by one owner");
            }
            reply => panic!("a lost owner's completion was {reply:?}"),
        }
    }
}

/// A lost owner renews while others claim: it keeps the key or is taken over, never both.
pub async fn renewal_and_takeover_exclude_each_other(store: &dyn Store, time: &dyn Time) {
    let operations: Vec<_> = (0..8).map(|_| TestOperation::new(store).lease(LEASE)).collect();
    let mut owners = Vec::new();
    for operation in &operations {
        owners.push(operation.owned().await);
    }
    time.pass(LEASE).await;
    for operation in &operations {
        operation.claim().await;
    }
    time.pass(operations[0].terms.grace_period().to_duration()).await;
    for (operation, owner) in operations.iter().zip(owners) {
        let call = async |n| match n {
            0 => RaceReply::Renewal(operation.renew(owner).await),
            _ => RaceReply::Claim(operation.clone().lease(LONG).claim().await),
        };
        let began = Instant::now();
        let mut replies = in_parallel((0..16).map(|n| Box::pin(call(n))).collect()).await;
        let RaceReply::Renewal(renewal) = replies.remove(0) else { panic!("answers in order") };
        let granted =
            replies.iter().filter(|t| matches!(t, RaceReply::Claim(Claim::Granted(_)))).count();
        let expected = usize::from(renewal == Renewal::Lost);
        // On a busy machine a renewed lease may end before the last claim.
        let lapsed = renewal == Renewal::Extended && began.elapsed() >= LEASE;
        let right = granted == expected || granted == 1 && lapsed;
        assert!(right, "the renewal was {renewal:?}: {replies:?}");
    }
}

/// Concurrent workers claim and release one key, and every grant has a token of its own.
pub async fn every_grant_has_its_own_token(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let worker = async || {
        let mut tokens = Vec::new();
        for _ in 0..20 {
            if let Claim::Granted(lease) = operation.claim().await {
                tokens.push(lease.owner.token);
                operation.release(lease.owner, Effect::None).await;
            }
        }
        tokens
    };
    let workers = (0..16).map(|_| Box::pin(worker())).collect();
    let tokens: Vec<_> = in_parallel(workers).await.into_iter().flatten().collect();
    let distinct: HashSet<_> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "two grants share a token");
    let record = operation.record().await;
    assert_eq!(record.token, tokens.len() as u64, "the token counts the grants");
    assert_eq!(u64::from(record.attempts), record.token, "every grant is an attempt");
}

/// Batches with the same keys in opposite order do not deadlock, and each key has one owner.
pub async fn batches_in_opposite_order_do_not_deadlock(store: &dyn Store, _: &dyn Time) {
    let operations: Vec<_> = (0..50).map(|_| TestOperation::new(store)).collect();
    let batch = |n| {
        let mut requests: Vec<_> = operations.iter().map(TestOperation::request).collect();
        if n % 2 == 1 {
            requests.reverse();
        }
        requests
    };
    let batches: Vec<Vec<ClaimRequest>> = (0..16).map(batch).collect();
    let replies = in_parallel(batches.iter().map(|batch| store.claim_many(batch)).collect()).await;
    let claims =
        replies.into_iter().flatten().map(|claim| expect_ok("claim_many", claim)).collect();
    let owners: Vec<Owner> = split(claims).0.iter().map(|lease| lease.owner).collect();
    let keys: HashSet<_> = owners.iter().map(|owner| owner.key).collect();
    assert_eq!((owners.len(), keys.len()), (50, 50), "each key has one owner");
    completed_in_opposite_order(store, &owners).await;
}

async fn completed_in_opposite_order(store: &dyn Store, owners: &[Owner]) {
    let complete = |&owner: &Owner| CompleteRequest { owner, outcome: success("done") };
    let forward: Vec<_> = owners.iter().map(complete).collect();
    let backward: Vec<_> = owners.iter().rev().map(complete).collect();
    let batch = |n| store.complete_many(if n % 2 == 0 { &forward } else { &backward });
    let replies = in_parallel((0..16).map(batch).collect()).await;
    let replies: Vec<Result<Completion>> = replies.into_iter().flatten().collect();
    assert_eq!(replies.len(), 16 * owners.len(), "one answer for each completion");
    for reply in replies {
        assert_eq!(expect_ok("complete_many", reply), Completion::Recorded, "the owner's own");
    }
}
