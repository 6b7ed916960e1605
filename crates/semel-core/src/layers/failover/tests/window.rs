//! How long the failback window stays open.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use super::{FailoverNode, RETENTION, key, request, until};
use crate::{
    CompleteRequest, Completion, Decision, OnLostOwner, Outcome, RenewRequest, Renewal, Resolution,
    ResolveRequest, State, Store,
};

/// The window is open while the owner works, and after that as long as the outcome is kept.
#[tokio::test]
async fn the_window_stays_open_while_an_owner_works() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.reconnect_primary().await;
    let renewal = RenewRequest::new(owner, RETENTION);
    let outcome = Arc::new(Outcome::success("done"));
    let completion = CompleteRequest { owner, outcome };
    node.shorten_window();
    assert_eq!(node.store.renew(&renewal).await.unwrap(), Renewal::Extended);
    assert!(node.window() > RETENTION, "{:?}", node.window());
    node.shorten_window();
    assert_eq!(node.store.complete(&completion).await.unwrap(), Completion::Recorded);
    assert!(node.window() > RETENTION, "{:?}", node.window());
}

#[tokio::test]
async fn the_window_stays_open_for_an_unknown_key_and_for_its_resolved_outcome() {
    let node = FailoverNode::alone();
    node.primary.cut.store(true, SeqCst);
    let mut held = request(1);
    held.terms.on_lost_owner = OnLostOwner::Hold;
    node.store.claim(&held).await.unwrap();
    node.reconnect_primary().await;
    // This node cannot read the window any more.
    node.secondary.cut.store(true, SeqCst);
    node.primary.clock.advance(RETENTION * 9);
    assert_eq!(node.secondary.store.purge(9).await.unwrap().held, 0, "the owner may be heard yet");
    node.primary.clock.advance(held.terms.grace_period().to_duration());
    assert_eq!(node.secondary.store.purge(9).await.unwrap().held, 1, "its owner was lost");
    assert_eq!(node.window(), Duration::ZERO);
    let late = node.twin();
    until("the window is open", async || late.window() > Duration::ZERO).await;
    let record = late.store.get(&key(1)).await.unwrap().unwrap().record;
    assert_eq!(record.state, State::Unknown);
    let decision = Decision::Complete(Arc::new(Outcome::success("done")));
    let (seen_nonce, seen_token) = (record.nonce, record.token);
    let request = ResolveRequest { key: key(1), seen_nonce, seen_token, decision };
    assert_eq!(late.store.resolve(&request).await.unwrap(), Resolution::Done);
    assert!(late.window() > RETENTION, "{:?}", late.window());
}
