//! What the primary grants when nobody waits for it any more.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use super::{Node, request, until};
use crate::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, Lease, Outcome, Result, State,
    Store,
};

/// Claims a key while the primary stalls, alone or in a batch.
async fn claim_late(node: &Node, asked: &ClaimRequest, many: bool) -> Result<Claim> {
    node.primary.stalled.store(true, SeqCst);
    match many {
        false => node.store.claim(asked).await,
        true => node.store.claim_many(std::slice::from_ref(asked)).await.remove(0),
    }
}

#[tokio::test]
async fn what_the_primary_grants_late_is_given_back_once_the_secondary_has_it() {
    for many in [false, true] {
        let (node, asked) = (Node::idle().await, request(1));
        let claim = claim_late(&node, &asked, many).await;
        assert!(matches!(claim, Ok(Claim::Granted(_))), "{claim:?}");
        node.primary.stalled.store(false, SeqCst);
        until("it is given back", async || node.on_primary(1).await == Some(State::Open)).await;
    }
}

#[tokio::test]
async fn what_the_primary_grants_before_the_secondary_does_is_given_back() {
    let (node, asked) = (Node::idle().await, request(1));
    node.secondary.stalled.store(true, SeqCst);
    let meanwhile = async {
        until("the secondary is asked", async || node.secondary.waiting.load(SeqCst) > 0).await;
        node.primary.stalled.store(false, SeqCst);
        until("it is granted", async || node.on_primary(1).await.is_some()).await;
        node.secondary.stalled.store(false, SeqCst);
    };
    let (claim, ()) = tokio::join!(claim_late(&node, &asked, false), meanwhile);
    assert!(matches!(claim, Ok(Claim::Granted(_))), "{claim:?}");
    until("it is given back", async || node.on_primary(1).await == Some(State::Open)).await;
}

/// The first try is answered after the second was granted elsewhere.
#[tokio::test]
async fn what_the_primary_grants_to_an_earlier_try_is_given_back() {
    let (node, asked) = (Node::idle().await, request(1));
    node.secondary.cut.store(true, SeqCst);
    claim_late(&node, &asked, false).await.unwrap_err();
    node.secondary.cut.store(false, SeqCst);
    let again = node.store.claim(&asked).await;
    assert!(matches!(again, Ok(Claim::Granted(_))), "{again:?}");
    node.primary.stalled.store(false, SeqCst);
    until("it is given back", async || node.on_primary(1).await == Some(State::Open)).await;
}

#[tokio::test]
async fn what_the_primary_grants_late_is_kept_for_who_asks_again() {
    let (node, asked) = (Node::idle().await, request(1));
    node.secondary.cut.store(true, SeqCst);
    let error = claim_late(&node, &asked, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    node.primary.stalled.store(false, SeqCst);
    until("it is granted", async || node.on_primary(1).await.is_some()).await;
    // Whoever would give it back has the time to.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let again = node.store.claim(&asked).await.unwrap();
    let Claim::Granted(Lease { owner, .. }) = again else { panic!("{again:?}") };
    let outcome = Arc::new(Outcome::success("done"));
    let said = node.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
    assert_eq!(said, Completion::Recorded);
}
