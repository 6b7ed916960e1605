//! A replay is the authority's, whoever answers.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use super::harness::{DOWN, RETENTION, SILENT, Scene, UP, completion, key, request, scene};
use crate::{
    Claim, ClaimRequest, Completion, Decision, Effect, ErrorKind, Outcome, Owner, Record,
    ReleaseRequest, Replica, ReplicaCache, ResolveRequest, Span, State, Store, Terms,
    layers::arbiter::replica,
};

#[tokio::test]
async fn a_replay_from_the_front_is_the_authoritys() {
    let scene = scene();
    scene.complete(1).await;
    scene.clock.advance(Duration::from_secs(5));
    let truth = match scene.judge.claim(&request(1, "a")).await.unwrap() {
        Claim::Replay(replay) => replay,
        claim => panic!("{claim:?}"),
    };
    scene.stop_judge(true);
    assert_eq!(scene.replay(1).await, truth);
}

#[tokio::test]
async fn a_replay_of_the_authority_brings_the_front_its_copy() {
    let scene = scene();
    scene.set(DOWN);
    scene.complete(1).await;
    scene.set(UP);
    assert!(!scene.is_copied(1).await);
    scene.clock.advance(Duration::from_secs(5));
    let first = scene.replay(1).await;
    scene.stop_judge(true);
    assert_eq!(scene.replay(1).await, first);
}

#[tokio::test]
async fn without_the_authority_only_replays_are_answered() {
    let scene = scene();
    scene.complete(1).await;
    scene.stop_judge(true);
    scene.replay(1).await;
    let new = scene.store.claim(&request(2, "a")).await.unwrap_err();
    assert_eq!(new.kind(), ErrorKind::Unavailable);
    let other = scene.store.claim(&request(1, "b")).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unavailable, "the front does not know what is pinned");
    let both = [request(1, "a"), request(2, "a"), request(3, "a")];
    let [replay, new, third] = scene.store.claim_many(&both).await.try_into().unwrap();
    assert!(matches!(replay, Ok(Claim::Replay(_))));
    assert!(new.is_err() && third.is_err());
}

#[tokio::test]
async fn without_the_front_nothing_fails_and_soon_nobody_asks_it() {
    let scene = scene();
    scene.set(DOWN);
    for byte in 1..=20 {
        scene.complete(byte).await;
        scene.replay(byte).await;
    }
    assert!(scene.front.asked.load(SeqCst) < 10, "a front that is gone costs every call");
    scene.set(UP);
    while !scene.is_copied(1).await {
        scene.replay(1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_front_that_says_nothing_is_not_waited_for() {
    let scene = scene();
    scene.set(SILENT);
    let began = Instant::now();
    for byte in 1..=50 {
        scene.complete(byte).await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_copy_ends_with_its_record() {
    let scene = scene();
    scene.complete(1).await;
    scene.clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(scene.replay(1).await.remaining, Duration::from_millis(1));
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.granted(1).await.attempt, 1);
}

#[tokio::test]
async fn something_else_that_is_asked_is_the_authoritys_to_answer() {
    let scene = scene();
    scene.complete(1).await;
    assert_eq!(scene.store.claim(&request(1, "b")).await.unwrap(), Claim::Mismatch);
}

#[tokio::test]
async fn of_two_outcomes_of_one_owner_the_first_is_replayed() {
    let scene = scene();
    let lease = scene.granted(1).await;
    // The reply to the first is lost on its way through the arbiter.
    scene.judge.complete(&completion(&lease, "first")).await.unwrap();
    scene.stop_judge(true);
    scene.store.complete(&completion(&lease, "first")).await.unwrap_err();
    scene.stop_judge(false);
    scene.store.complete(&completion(&lease, "second")).await.unwrap();
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("first"));
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("first"));
}

#[tokio::test]
async fn a_lost_owner_that_was_replaced_puts_nothing() {
    let scene = scene();
    let lost = scene.granted(1).await;
    scene.clock.advance(Duration::from_secs(31));
    scene.complete_taken_over(1).await;
    let said = scene.store.complete(&completion(&lost, "late")).await.unwrap();
    assert!(matches!(said, Completion::Superseded(_)));
    assert_eq!(*scene.replay(1).await.outcome, Outcome::success("winner"));
}

impl Scene {
    async fn complete_taken_over(&self, byte: u8) {
        let lease = self.granted(byte).await;
        self.store.complete(&completion(&lease, "winner")).await.unwrap();
    }
}

/// A claim that is sent again with other terms leaves open which ones count, whatever strangers did meanwhile.
#[tokio::test]
async fn a_strangers_release_is_no_owners() {
    let scene = scene();
    let first = request(1, "a");
    let lease = match scene.store.claim(&first).await.unwrap() {
        Claim::Granted(lease) => lease,
        claim => panic!("{claim:?}"),
    };
    let stranger = Owner { key: key(2), ..lease.owner };
    let release = ReleaseRequest { owner: stranger, effect: Effect::None };
    scene.store.release(&release).await.unwrap();
    let longer = Terms { retention: Span::from_millis(7_200_000), ..first.terms };
    scene.store.claim(&ClaimRequest { terms: longer, ..first }).await.unwrap();
    scene.store.complete(&completion(&lease, "done")).await.unwrap();
    assert_eq!(scene.replay(1).await.remaining, RETENTION);
}

#[tokio::test]
async fn what_an_operator_decides_is_replayed_and_copied() {
    let scene = scene();
    let stuck = scene.granted(1).await;
    scene.clock.advance(Duration::from_secs(31));
    let decided = ResolveRequest {
        key: key(1),
        seen_nonce: Some(stuck.owner.nonce),
        seen_token: stuck.owner.token,
        decision: Decision::Complete(Arc::new(Outcome::success("decided"))),
    };
    scene.store.resolve(&decided).await.unwrap();
    let said = scene.store.complete(&completion(&stuck, "late")).await.unwrap();
    assert!(matches!(said, Completion::Superseded(_)));
    for _ in 0..2 {
        assert_eq!(*scene.replay(1).await.outcome, Outcome::success("decided"));
    }
    assert!(scene.is_copied(1).await);
}

#[tokio::test]
async fn a_mixed_up_or_foreign_copy_answers_nothing() {
    let scene = scene();
    scene.complete(1).await;
    let copy = scene.front.cache.look(&[key(1)]).await.pop().unwrap().unwrap().unwrap();
    let other = Replica { record: Record { key: key(2), ..copy.record.clone() }, ..copy };
    assert!(replica::answer(&other, &request(1, "a")).is_none());
    let open = Record { state: State::Open, key: key(1), ..other.record.clone() };
    assert!(replica::answer(&Replica { record: open, ..other }, &request(1, "a")).is_none());
}

#[tokio::test]
async fn news_of_both_is_heard() {
    let scene = scene();
    let feed = scene.store.info().change_feed.unwrap();
    let mut listener = feed.subscribe(&key(1));
    scene.front.cache.remove(&key(1)).await.unwrap();
    listener.changed().await;
}
