//! Grants of the primary that come after its timeout.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use super::{FailoverNode, request, until};
use crate::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, Lease, Outcome, Result, State,
    Store,
};

/// Claims a key while the primary stalls, alone or in a batch.
async fn claim_with_stalled_primary(
    node: &FailoverNode,
    request: &ClaimRequest,
    many: bool,
) -> Result<Claim> {
    node.primary.stalled.store(true, SeqCst);
    match many {
        false => node.store.claim(request).await,
        true => node.store.claim_many(std::slice::from_ref(request)).await.remove(0),
    }
}

#[tokio::test]
async fn a_late_grant_of_the_primary_is_released_once_the_secondary_has_granted() {
    for many in [false, true] {
        let (node, request) = (FailoverNode::with_closed_window().await, request(1));
        let claim = claim_with_stalled_primary(&node, &request, many).await;
        assert!(matches!(claim, Ok(Claim::Granted(_))), "{claim:?}");
        node.primary.stalled.store(false, SeqCst);
        until("the late grant is released", async || node.on_primary(1).await == Some(State::Open))
            .await;
    }
}

#[tokio::test]
async fn a_late_grant_that_comes_before_the_secondarys_is_released() {
    let (node, request) = (FailoverNode::with_closed_window().await, request(1));
    node.secondary.stalled.store(true, SeqCst);
    let meanwhile = async {
        until("the secondary is called", async || node.secondary.waiting.load(SeqCst) > 0).await;
        node.primary.stalled.store(false, SeqCst);
        until("the primary grants", async || node.on_primary(1).await.is_some()).await;
        node.secondary.stalled.store(false, SeqCst);
    };
    let (claim, ()) = tokio::join!(claim_with_stalled_primary(&node, &request, false), meanwhile);
    assert!(matches!(claim, Ok(Claim::Granted(_))), "{claim:?}");
    until("the late grant is released", async || node.on_primary(1).await == Some(State::Open))
        .await;
}

/// The reply to the first claim comes after the secondary has granted the second one.
#[tokio::test]
async fn a_late_grant_of_an_earlier_claim_is_released() {
    let (node, request) = (FailoverNode::with_closed_window().await, request(1));
    node.secondary.cut.store(true, SeqCst);
    claim_with_stalled_primary(&node, &request, false).await.unwrap_err();
    node.secondary.cut.store(false, SeqCst);
    let again = node.store.claim(&request).await;
    assert!(matches!(again, Ok(Claim::Granted(_))), "{again:?}");
    node.primary.stalled.store(false, SeqCst);
    until("the late grant is released", async || node.on_primary(1).await == Some(State::Open))
        .await;
}

#[tokio::test]
async fn a_late_grant_is_kept_for_a_repeated_claim() {
    let (node, request) = (FailoverNode::with_closed_window().await, request(1));
    node.secondary.cut.store(true, SeqCst);
    let error = claim_with_stalled_primary(&node, &request, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    node.primary.stalled.store(false, SeqCst);
    until("the primary grants", async || node.on_primary(1).await.is_some()).await;
    // A wrong release would happen within this time.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let again = node.store.claim(&request).await.unwrap();
    let Claim::Granted(Lease { owner, .. }) = again else { panic!("{again:?}") };
    let outcome = Arc::new(Outcome::success("done"));
    let reply = node.store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
    assert_eq!(reply, Completion::Recorded);
}
