//! Replies that do not come, and requests that come late.

use semel_core::{Claim, Completion, Forgetting, State};
use semel_faults::Fault;

use super::subject::{
    Subject, claim, complete, granted, outcome, rival, unavailable, until_answered,
};

/// The store was granted the key for a caller that never heard of it: its retry is the same claim.
pub(crate) async fn a_claim_whose_reply_is_lost_is_granted_to_its_retry(subject: Subject) {
    let (store, truth, request) = (subject.store(1).await, subject.truth().await, claim());
    subject.lose_reply_about(&request.key);
    subject.lost_claim(store.claim(&request).await);
    assert_eq!(subject.proxy.traps_left(), 0);
    let seen = truth.get(&request.key).await.unwrap().unwrap().record;
    assert_eq!((seen.state, seen.token, seen.nonce), (State::InProgress, 1, Some(request.nonce)));

    let lease = granted(&request, until_answered(|| store.claim(&request)).await);
    assert_eq!((lease.owner.token, lease.attempt, lease.takeover), (1, 1, false));
    let other = truth.claim(&rival(&request)).await.unwrap();
    assert!(matches!(other, Claim::Busy { .. }), "{other:?}");
}

pub(crate) async fn an_outcome_whose_reply_is_lost_is_recorded_once(subject: Subject) {
    let (store, truth, request) = (subject.store(1).await, subject.truth().await, claim());
    let lease = granted(&request, store.claim(&request).await.unwrap());
    subject.lose_reply_about(&request.key);
    subject.lost_outcome(store.complete(&complete(&lease)).await);
    assert_eq!(subject.proxy.traps_left(), 0);
    let recorded = truth.get(&request.key).await.unwrap().unwrap().record;
    assert_eq!(recorded.state, State::Completed);

    let done = complete(&lease);
    let again = until_answered(|| store.complete(&done)).await;
    assert_eq!(again, Completion::Recorded);
    assert_eq!(truth.get(&request.key).await.unwrap().unwrap().record, recorded);
    match store.claim(&rival(&request)).await.unwrap() {
        Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&request.key)),
        other => panic!("expected the outcome, got {other:?}"),
    }
}

/// It was recorded, and somebody forgot it before the store could look: whoever says that it was not there all along is
/// wrong.
pub(crate) async fn an_outcome_whose_reply_is_lost_is_not_denied(subject: Subject) {
    let (store, truth) = (subject.store(1).await, subject.truth().await);
    for _ in 0..10 {
        let request = claim();
        let claimed = until_answered(|| store.claim(&request)).await;
        let done = complete(&granted(&request, claimed));
        subject.lose_reply_about(&request.key);
        let forgetting =
            async { while truth.forget(&request.key).await.unwrap() != Forgetting::Forgotten {} };
        let (answer, ()) = tokio::join!(store.complete(&done), forgetting);
        assert!(!matches!(answer, Ok(Completion::Missing)), "{answer:?}");
        subject.lost_outcome(answer);
    }
}

/// The request was under way when its caller gave up, and arrives after that.
pub(crate) async fn a_claim_that_arrives_late_is_still_its_callers(subject: Subject) {
    let (store, truth, request) = (subject.store(1).await, subject.truth().await, claim());
    // Something went this way before: the connection is there.
    until_answered(|| store.get(&request.key)).await;
    subject.proxy.set(Fault::Hold);
    unavailable(store.claim(&request).await);
    assert_eq!(truth.get(&request.key).await.unwrap(), None);
    subject.proxy.set(Fault::None);

    let lease = granted(&request, until_answered(|| store.claim(&request)).await);
    assert_eq!((lease.owner.token, lease.attempt), (1, 1));
    assert_eq!(store.complete(&complete(&lease)).await.unwrap(), Completion::Recorded);
}
