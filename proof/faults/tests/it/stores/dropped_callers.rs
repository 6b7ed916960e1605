//! Callers that do not wait for their answer.

use std::time::Duration;

use futures_util::future::join_all;
use semel_core::{Claim, Completion};
use semel_faults::Fault;
use tokio::time::timeout;

use super::subject::{Subject, claim, complete, granted, outcome, rival};

/// With one connection, the next caller would be handed the answer that was left, or would find a
/// transaction that is still open.
pub(crate) async fn a_caller_that_leaves_takes_nothing_along(subject: Subject) {
    let (store, truth) = (subject.store(1).await, subject.truth().await);
    let done = claim();
    let lease = granted(&done, store.claim(&done).await.unwrap());
    assert_eq!(store.complete(&complete(&lease)).await.unwrap(), Completion::Recorded);
    subject.proxy.set(Fault::Slow(Duration::from_millis(4)));
    let mut left = Vec::new();
    for round in 0..40_u64 {
        let (leaves, stays) = (claim(), claim());
        // Sometimes before it is sent, sometimes before it is answered.
        let patience = Duration::from_millis(round % 8);
        let gone = timeout(patience, store.claim(&leaves)).await.is_err();
        left.extend(gone.then_some(leaves));

        granted(&stays, store.claim(&stays).await.unwrap());
        match store.claim(&rival(&done)).await.unwrap() {
            Claim::Replay(replay) => assert_eq!(replay.outcome, outcome(&done.key)),
            other => panic!("expected the outcome of another key, got {other:?}"),
        }
    }
    assert!(!left.is_empty(), "nobody left");
    // Whether it happened or not, nothing holds on to it: another connection is answered.
    let answers = join_all(left.iter().map(|request| truth.claim(request))).await;
    for (request, answer) in left.iter().zip(answers) {
        assert_eq!(granted(request, answer.unwrap()).owner.token, 1);
    }
}
