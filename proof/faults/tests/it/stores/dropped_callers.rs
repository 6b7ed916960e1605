//! Callers that drop their call before the reply.

use std::time::Duration;

use futures_util::future::join_all;
use semel_core::{Claim, Completion};
use semel_faults::Fault;
use tokio::time::timeout;

use super::subject::{StoreUnderTest, claim, complete, granted, outcome, rival};

/// On the only connection, a dropped call must not leave its reply or an open transaction to the next caller.
pub(crate) async fn a_dropped_call_does_not_disturb_later_calls(subject: StoreUnderTest) {
    let (store, direct) = (subject.store(1).await, subject.direct().await);
    let done = claim();
    let lease = granted(&done, store.claim(&done).await.unwrap());
    assert_eq!(store.complete(&complete(&lease)).await.unwrap(), Completion::Recorded);
    subject.proxy.set(Fault::Slow(Duration::from_millis(4)));
    let mut left = Vec::new();
    for round in 0..40_u64 {
        let (leaves, stays) = (claim(), claim());
        // Some calls are dropped before the request is sent, some before its reply.
        let patience = Duration::from_millis(round % 8);
        let gone = timeout(patience, store.claim(&leaves)).await.is_err();
        left.extend(gone.then_some(leaves));

        granted(&stays, store.claim(&stays).await.unwrap());
        match store.claim(&rival(&done)).await.unwrap() {
            Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&done.key)),
            other => panic!("expected the outcome of another key, got {other:?}"),
        }
    }
    assert!(!left.is_empty(), "no call was dropped");
    // Whether the dropped calls took effect or not, they hold no lock: a claim over another connection is granted.
    let answers = join_all(left.iter().map(|request| direct.claim(request))).await;
    for (request, answer) in left.iter().zip(answers) {
        assert_eq!(granted(request, answer.unwrap()).owner.token, 1);
    }
}
