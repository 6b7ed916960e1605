//! Replays: the front replays exactly what the authority would.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use super::harness::{
    ArbiterTest, DOWN, RETENTION, SILENT, UP, arbiter_test, completion, key, request,
};
use crate::{
    Claim, ClaimRequest, Completion, Decision, Effect, ErrorKind, Outcome, Owner, Record,
    ReleaseRequest, Replica, ReplicaCache, ResolveRequest, Span, State, Store, Terms,
    layers::arbiter::replica,
};

#[tokio::test]
async fn the_front_replays_what_the_authority_would() {
    let test = arbiter_test();
    test.complete(1).await;
    test.clock.advance(Duration::from_secs(5));
    let expected = match test.authority.claim(&request(1, "a")).await.unwrap() {
        Claim::Replay(replay) => replay,
        claim => panic!("{claim:?}"),
    };
    test.set_authority_down(true);
    assert_eq!(test.replay(1).await, expected);
}

#[tokio::test]
async fn a_replay_of_the_authority_is_copied_to_the_front() {
    let test = arbiter_test();
    test.set_front(DOWN);
    test.complete(1).await;
    test.set_front(UP);
    assert!(!test.is_copied(1).await);
    test.clock.advance(Duration::from_secs(5));
    let first = test.replay(1).await;
    test.set_authority_down(true);
    assert_eq!(test.replay(1).await, first);
}

#[tokio::test]
async fn without_the_authority_only_replays_succeed() {
    let test = arbiter_test();
    test.complete(1).await;
    test.set_authority_down(true);
    test.replay(1).await;
    let new = test.store.claim(&request(2, "a")).await.unwrap_err();
    assert_eq!(new.kind(), ErrorKind::Unavailable);
    let other = test.store.claim(&request(1, "b")).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unavailable, "only the authority can report a mismatch");
    let both = [request(1, "a"), request(2, "a"), request(3, "a")];
    let [replay, new, third] = test.store.claim_many(&both).await.try_into().unwrap();
    assert!(matches!(replay, Ok(Claim::Replay(_))));
    assert!(new.is_err() && third.is_err());
}

#[tokio::test]
async fn without_the_front_nothing_fails_and_it_is_soon_not_called() {
    let test = arbiter_test();
    test.set_front(DOWN);
    for byte in 1..=20 {
        test.complete(byte).await;
        test.replay(byte).await;
    }
    assert!(test.front.calls.load(SeqCst) < 10, "a front that is down is called every time");
    test.set_front(UP);
    while !test.is_copied(1).await {
        test.replay(1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_front_that_does_not_reply_is_not_waited_for() {
    let test = arbiter_test();
    test.set_front(SILENT);
    let began = Instant::now();
    for byte in 1..=50 {
        test.complete(byte).await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_copy_ends_with_its_record() {
    let test = arbiter_test();
    test.complete(1).await;
    test.clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(test.replay(1).await.remaining, Duration::from_millis(1));
    test.clock.advance(Duration::from_millis(1));
    assert_eq!(test.granted(1).await.attempt, 1);
}

#[tokio::test]
async fn a_request_with_another_fingerprint_goes_to_the_authority() {
    let test = arbiter_test();
    test.complete(1).await;
    assert_eq!(test.store.claim(&request(1, "b")).await.unwrap(), Claim::Mismatch);
}

#[tokio::test]
async fn the_first_of_two_outcomes_of_one_owner_is_replayed() {
    let test = arbiter_test();
    let lease = test.granted(1).await;
    // The arbiter does not see the reply to the first completion.
    test.authority.complete(&completion(&lease, "first")).await.unwrap();
    test.set_authority_down(true);
    test.store.complete(&completion(&lease, "first")).await.unwrap_err();
    test.set_authority_down(false);
    test.store.complete(&completion(&lease, "second")).await.unwrap();
    assert_eq!(*test.replay(1).await.outcome, Outcome::success("first"));
    assert_eq!(*test.replay(1).await.outcome, Outcome::success("first"));
}

#[tokio::test]
async fn a_superseded_owner_writes_no_copy() {
    let test = arbiter_test();
    let lost = test.granted(1).await;
    test.clock.advance(Duration::from_secs(31));
    let contested = test.store.claim(&request(1, "a")).await.unwrap();
    assert!(matches!(contested, Claim::Busy { .. }), "{contested:?}");
    test.clock.advance(Duration::from_secs(10));
    test.complete_taken_over(1).await;
    let reply = test.store.complete(&completion(&lost, "late")).await.unwrap();
    assert!(matches!(reply, Completion::Superseded(_)));
    assert_eq!(*test.replay(1).await.outcome, Outcome::success("winner"));
}

impl ArbiterTest {
    async fn complete_taken_over(&self, byte: u8) {
        let lease = self.granted(byte).await;
        self.store.complete(&completion(&lease, "winner")).await.unwrap();
    }
}

/// If a claim is repeated with other terms, it is not known which terms the record has. A release by another owner in
/// between does not change that.
#[tokio::test]
async fn a_release_by_another_owner_does_not_forget_the_claim() {
    let test = arbiter_test();
    let first = request(1, "a");
    let lease = match test.store.claim(&first).await.unwrap() {
        Claim::Granted(lease) => lease,
        claim => panic!("{claim:?}"),
    };
    let stranger = Owner { key: key(2), ..lease.owner };
    let release = ReleaseRequest { owner: stranger, effect: Effect::None };
    test.store.release(&release).await.unwrap();
    let longer = Terms { retention: Span::from_millis(7_200_000), ..first.terms };
    test.store.claim(&ClaimRequest { terms: longer, ..first }).await.unwrap();
    test.store.complete(&completion(&lease, "done")).await.unwrap();
    assert_eq!(test.replay(1).await.remaining, RETENTION);
}

#[tokio::test]
async fn an_operators_outcome_is_replayed_and_copied() {
    let test = arbiter_test();
    let stuck = test.granted(1).await;
    test.clock.advance(Duration::from_secs(31));
    let decided = ResolveRequest {
        key: key(1),
        seen_nonce: Some(stuck.owner.nonce),
        seen_token: stuck.owner.token,
        decision: Decision::Complete(Arc::new(Outcome::success("decided"))),
    };
    test.store.resolve(&decided).await.unwrap();
    let reply = test.store.complete(&completion(&stuck, "late")).await.unwrap();
    assert!(matches!(reply, Completion::Superseded(_)));
    for _ in 0..2 {
        assert_eq!(*test.replay(1).await.outcome, Outcome::success("decided"));
    }
    assert!(test.is_copied(1).await);
}

#[tokio::test]
async fn a_copy_of_another_key_or_state_is_not_replayed() {
    let test = arbiter_test();
    test.complete(1).await;
    let copy = test.front.cache.look(&[key(1)]).await.pop().unwrap().unwrap().unwrap();
    let other = Replica { record: Record { key: key(2), ..copy.record.clone() }, ..copy };
    assert!(replica::replay(&other, &request(1, "a")).is_none());
    let open = Record { state: State::Open, key: key(1), ..other.record.clone() };
    assert!(replica::replay(&Replica { record: open, ..other }, &request(1, "a")).is_none());
}

#[tokio::test]
async fn changes_of_both_stores_are_notified() {
    let test = arbiter_test();
    let feed = test.store.info().change_feed.unwrap();
    let mut subscription = feed.subscribe(&key(1));
    test.front.cache.remove(&key(1)).await.unwrap();
    subscription.changed().await;
}
