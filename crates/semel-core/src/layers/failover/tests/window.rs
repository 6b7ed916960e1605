//! How long the secondary is asked.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use super::{Node, RETENTION, key, request, until};
use crate::{
    CompleteRequest, Completion, Decision, OnLostOwner, Outcome, RenewRequest, Renewal, Resolution,
    ResolveRequest, State, Store,
};

/// As long as its owner works, and from then on as long as the outcome is kept.
#[tokio::test]
async fn the_window_does_not_close_on_who_still_works() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    let owner = node.granted(1).await.owner;
    node.back().await;
    let renewal = RenewRequest { owner, max_run: RETENTION };
    let outcome = Arc::new(Outcome::success("done"));
    let completion = CompleteRequest { owner, outcome };
    node.nearly_closed();
    assert_eq!(node.store.renew(&renewal).await.unwrap(), Renewal::Extended);
    assert!(node.window() > RETENTION, "{:?}", node.window());
    node.nearly_closed();
    assert_eq!(node.store.complete(&completion).await.unwrap(), Completion::Recorded);
    assert!(node.window() > RETENTION, "{:?}", node.window());
}

#[tokio::test]
async fn the_window_does_not_close_on_what_is_unknown_nor_on_what_became_of_it() {
    let node = Node::alone();
    node.primary.cut.store(true, SeqCst);
    let mut held = request(1);
    held.terms.on_lost_owner = OnLostOwner::Hold;
    node.store.claim(&held).await.unwrap();
    node.back().await;
    // This node reads nothing any more.
    node.secondary.cut.store(true, SeqCst);
    node.primary.clock.advance(RETENTION * 9);
    assert_eq!(node.secondary.store.purge(9).await.unwrap().held, 1, "its owner was lost");
    assert_eq!(node.window(), Duration::ZERO);
    let late = node.twin();
    until("the window is open", async || late.window() > Duration::ZERO).await;
    let seen = late.store.get(&key(1)).await.unwrap().unwrap().record;
    assert_eq!(seen.state, State::Unknown);
    let decision = Decision::Complete(Arc::new(Outcome::success("done")));
    let (seen_nonce, seen_token) = (seen.nonce, seen.token);
    let request = ResolveRequest { key: key(1), seen_nonce, seen_token, decision };
    assert_eq!(late.store.resolve(&request).await.unwrap(), Resolution::Done);
    assert!(late.window() > RETENTION, "{:?}", late.window());
}
