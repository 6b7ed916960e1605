//! Replies that are lost, and requests that arrive late.

use semel_core::{Claim, Completion, Forgetting, State};
use semel_faults::Fault;

use super::subject::{
    StoreUnderTest, claim, complete, granted, outcome, rival, unavailable, until_answered,
};

/// The key was granted to a caller that got no reply: its retry is the same claim.
pub(crate) async fn a_claim_whose_reply_is_lost_is_granted_to_its_retry(subject: StoreUnderTest) {
    let (store, direct, request) = (subject.store(1).await, subject.direct().await, claim());
    subject.lose_reply_about(&request.key);
    subject.lost_claim(store.claim(&request).await);
    assert_eq!(subject.proxy.traps_left(), 0);
    let seen = direct.get(&request.key).await.unwrap().unwrap().record;
    assert_eq!((seen.state, seen.token, seen.nonce), (State::InProgress, 1, Some(request.nonce)));

    let lease = granted(&request, until_answered(|| store.claim(&request)).await);
    assert_eq!((lease.owner.token, lease.attempt, lease.takeover), (1, 1, false));
    let other = direct.claim(&rival(&request)).await.unwrap();
    assert!(matches!(other, Claim::Busy { .. }), "{other:?}");
}

pub(crate) async fn an_outcome_whose_reply_is_lost_is_recorded_once(subject: StoreUnderTest) {
    let (store, direct, request) = (subject.store(1).await, subject.direct().await, claim());
    let lease = granted(&request, store.claim(&request).await.unwrap());
    subject.lose_reply_about(&request.key);
    subject.lost_outcome(store.complete(&complete(&lease)).await);
    assert_eq!(subject.proxy.traps_left(), 0);
    let recorded = direct.get(&request.key).await.unwrap().unwrap().record;
    assert_eq!(recorded.state, State::Completed);

    let done = complete(&lease);
    let again = until_answered(|| store.complete(&done)).await;
    assert_eq!(again, Completion::Recorded);
    assert_eq!(direct.get(&request.key).await.unwrap().unwrap().record, recorded);
    match store.claim(&rival(&request)).await.unwrap() {
        Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&request.key)),
        other => panic!("expected the outcome, got {other:?}"),
    }
}

/// The outcome was recorded, and an operator forgot it before the store could check: the store must not reply that
/// the record was missing.
pub(crate) async fn an_outcome_whose_reply_is_lost_is_not_denied(subject: StoreUnderTest) {
    let (store, direct) = (subject.store(1).await, subject.direct().await);
    for _ in 0..10 {
        let request = claim();
        let claimed = until_answered(|| store.claim(&request)).await;
        let done = complete(&granted(&request, claimed));
        subject.lose_reply_about(&request.key);
        let forgetting =
            async { while direct.forget(&request.key).await.unwrap() != Forgetting::Forgotten {} };
        let (answer, ()) = tokio::join!(store.complete(&done), forgetting);
        assert!(!matches!(answer, Ok(Completion::Missing)), "{answer:?}");
        subject.lost_outcome(answer);
    }
}

/// The caller gives up while its request is under way, and the request arrives after that.
pub(crate) async fn a_claim_that_arrives_late_belongs_to_its_caller(subject: StoreUnderTest) {
    let (store, direct, request) = (subject.store(1).await, subject.direct().await, claim());
    // The connection exists before the fault begins.
    until_answered(|| store.get(&request.key)).await;
    subject.proxy.set(Fault::Hold);
    unavailable(store.claim(&request).await);
    assert_eq!(direct.get(&request.key).await.unwrap(), None);
    subject.proxy.set(Fault::None);

    let lease = granted(&request, until_answered(|| store.claim(&request)).await);
    assert_eq!((lease.owner.token, lease.attempt), (1, 1));
    assert_eq!(store.complete(&complete(&lease)).await.unwrap(), Completion::Recorded);
}
