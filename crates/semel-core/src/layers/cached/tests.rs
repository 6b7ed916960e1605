//! What the cache keeps, and what it never does.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::*;
use crate::{
    ChangeFeed, Effect, Fingerprint, Lease, ManualClock, MemoryStore, Nonce, OnLostOwner, Outcome,
    Replay, Span, Terms,
};

const RETENTION: Duration = Duration::from_secs(3600);

/// A store that hears news, with a cache in front of it, and another way in past the cache.
struct Scene {
    cached: Cached<FeedConnection>,
    behind: MemoryStore,
    clock: ManualClock,
    feed: ChangeFeed,
}

/// The memory store, with news.
#[derive(Debug)]
struct FeedConnection {
    store: MemoryStore,
    feed: Option<ChangeFeed>,
}

macro_rules! hearing {
    ($($step:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for FeedConnection {
            fn info(&self) -> StoreInfo {
                StoreInfo { change_feed: self.feed.clone(), ..self.store.info() }
            }
            $(async fn $step(&self, request: $request) -> $answer {
                self.store.$step(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(hearing);

fn scene(
    set: impl FnOnce(CachedBuilder<FeedConnection>) -> CachedBuilder<FeedConnection>,
) -> Scene {
    scene_with(Some(ChangeFeed::new()), set)
}

fn scene_with(
    feed: Option<ChangeFeed>,
    set: impl FnOnce(CachedBuilder<FeedConnection>) -> CachedBuilder<FeedConnection>,
) -> Scene {
    let clock = ManualClock::new();
    let behind = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = FeedConnection { store: behind.clone(), feed: feed.clone() };
    let cached = set(Cached::builder(store).clock(clock.clone())).build();
    Scene { cached, behind, clock, feed: feed.unwrap_or_default() }
}

fn request(key: u8, asked: &str) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    ClaimRequest {
        key: KeyHash::from_bytes([key; 32]),
        fingerprint: Fingerprint::of_bytes(asked.as_bytes()),
        nonce: Nonce::random(),
        terms,
        labels: None,
    }
}

impl Scene {
    async fn granted(&self, key: u8) -> Lease {
        match self.cached.claim(&request(key, "a")).await.unwrap() {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    async fn complete(&self, key: u8, body: impl Into<Bytes>) {
        let owner = self.granted(key).await.owner;
        let outcome = Arc::new(Outcome::success(body));
        let said = self.cached.complete(&CompleteRequest { owner, outcome }).await.unwrap();
        assert_eq!(said, Completion::Recorded);
    }

    /// True when the cache answered, and not the store behind it.
    async fn is_cached(&self, key: u8) -> bool {
        match self.cached.claim(&request(key, "a")).await.unwrap() {
            Claim::Replay(replay) => replay.cached,
            claim => panic!("{claim:?}"),
        }
    }
}

#[tokio::test]
async fn the_second_replay_comes_from_memory_and_is_the_first() {
    let scene = scene(|it| it);
    scene.complete(1, "done").await;
    scene.clock.advance(Duration::from_secs(5));
    let replay = async || match scene.cached.claim(&request(1, "a")).await.unwrap() {
        Claim::Replay(replay) => replay,
        claim => panic!("{claim:?}"),
    };
    let (first, second) = (replay().await, replay().await);
    assert!(!first.cached && second.cached);
    assert_eq!(Replay { cached: false, ..second }, first);
}

#[tokio::test]
async fn only_what_is_recorded_is_kept() {
    let scene = scene(|it| it);
    let owner = scene.granted(1).await.owner;
    assert!(matches!(scene.cached.claim(&request(1, "a")).await.unwrap(), Claim::Busy { .. }));
    assert_eq!(scene.cached.entries(), 0, "an owned key");
    scene.cached.release(&ReleaseRequest { owner, effect: Effect::None }).await.unwrap();
    scene.complete(1, "done").await;
    assert_eq!(scene.cached.entries(), 0, "what an owner recorded is not yet what is replayed");
    assert!(!scene.is_cached(1).await);
    assert_eq!(scene.cached.entries(), 1);
}

#[tokio::test]
async fn something_else_that_is_asked_goes_to_the_store() {
    let scene = scene(|it| it);
    scene.complete(1, "done").await;
    assert!(!scene.is_cached(1).await && scene.is_cached(1).await);
    assert_eq!(scene.cached.claim(&request(1, "b")).await.unwrap(), Claim::Mismatch);
    assert!(scene.is_cached(1).await, "and drops nothing");
}

#[tokio::test]
async fn an_entry_ends_with_its_ttl_and_with_its_record() {
    let scene = scene(|it| it.ttl(Duration::from_secs(60)));
    scene.complete(1, "done").await;
    scene.clock.advance(RETENTION - Duration::from_secs(90));
    assert!(!scene.is_cached(1).await && scene.is_cached(1).await);
    scene.clock.advance(Duration::from_secs(60));
    assert!(!scene.is_cached(1).await, "its minute is over");
    scene.clock.advance(Duration::from_millis(29_999));
    assert!(scene.is_cached(1).await);
    scene.clock.advance(Duration::from_millis(1));
    scene.granted(1).await;
}

#[tokio::test]
async fn an_id_alone_lives_as_long_as_its_record_while_news_is_heard() {
    let feed = ChangeFeed::new();
    let _connected = feed.connected();
    for (feed, lives) in [(Some(feed), true), (Some(ChangeFeed::new()), false), (None, false)] {
        let scene = scene_with(feed, |it| it);
        scene.complete(1, "").await;
        assert!(!scene.is_cached(1).await && scene.is_cached(1).await);
        scene.clock.advance(RETENTION - Duration::from_millis(1));
        assert_eq!(scene.is_cached(1).await, lives);
        scene.clock.advance(Duration::from_millis(1));
        scene.granted(1).await;
    }
}

#[tokio::test]
async fn an_id_alone_is_dropped_when_news_is_lost() {
    let scene = scene(|it| it);
    let hearing = scene.feed.connected();
    scene.complete(1, "").await;
    assert!(!scene.is_cached(1).await && scene.is_cached(1).await);
    drop(hearing);
    assert!(!scene.is_cached(1).await && scene.is_cached(1).await);
    scene.clock.advance(CachedBuilder::<MemoryStore>::TTL);
    assert!(!scene.is_cached(1).await);
}

#[tokio::test]
async fn what_an_operator_changes_here_is_seen_here_at_once() {
    let scene = scene(|it| it);
    for key in 1..=2 {
        scene.complete(key, "done").await;
        assert!(!scene.is_cached(key).await && scene.is_cached(key).await);
    }
    scene.cached.erase(&KeyHash::from_bytes([1; 32])).await.unwrap();
    assert_eq!(scene.cached.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    scene.cached.forget(&KeyHash::from_bytes([2; 32])).await.unwrap();
    scene.granted(2).await;
}

#[tokio::test]
async fn news_of_a_key_drops_it_and_lost_news_drops_all() {
    let scene = scene(|it| it);
    for key in 1..=3 {
        scene.complete(key, "done").await;
        assert!(!scene.is_cached(key).await && scene.is_cached(key).await);
    }
    scene.behind.erase(&KeyHash::from_bytes([1; 32])).await.unwrap();
    assert!(scene.is_cached(1).await, "nobody has told yet");
    scene.feed.notify(&KeyHash::from_bytes([1; 32]));
    assert_eq!(scene.cached.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    assert!(scene.is_cached(2).await);
    scene.feed.notify_all();
    assert!(!scene.is_cached(2).await && !scene.is_cached(3).await);
}

#[tokio::test]
async fn what_was_read_before_a_key_changed_is_not_kept_after() {
    let scene = scene(|it| it);
    scene.complete(1, "done").await;
    let asked = request(1, "a");
    let Found::Miss(missed) = scene.cached.find(&asked) else { panic!("nothing is kept yet") };
    let read = scene.behind.claim(&asked).await;
    scene.cached.erase(&asked.key).await.unwrap();
    scene.cached.keep(&asked, missed, &read);
    assert_eq!(scene.cached.claim(&asked).await.unwrap(), Claim::Gone);
}

#[tokio::test]
async fn what_was_used_least_recently_leaves_first() {
    let scene = scene(|it| it.entries(3));
    for key in 1..=3 {
        scene.complete(key, "done").await;
        scene.is_cached(key).await;
    }
    assert!(scene.is_cached(1).await);
    scene.complete(4, "done").await;
    scene.is_cached(4).await;
    assert_eq!(scene.cached.entries(), 3);
    assert!(scene.is_cached(1).await && scene.is_cached(3).await && scene.is_cached(4).await);
    assert!(!scene.is_cached(2).await);
}

#[tokio::test]
async fn its_bytes_are_bounded_and_nothing_too_large_drives_out_the_rest() {
    let scene = scene(|it| it.entries(10).bytes(2000));
    for key in 1..=5 {
        scene.complete(key, "done").await;
        scene.is_cached(key).await;
    }
    let held = scene.cached.entries();
    assert!((2..=5).contains(&held), "{held}");
    scene.complete(9, "x".repeat(4000)).await;
    assert!(!scene.is_cached(9).await && !scene.is_cached(9).await);
    assert_eq!(scene.cached.entries(), held);
}

#[tokio::test]
async fn a_batch_asks_the_store_only_for_what_is_missing() {
    let scene = scene(|it| it);
    for key in [1, 3] {
        scene.complete(key, "done").await;
    }
    scene.is_cached(1).await;
    let requests = [request(2, "a"), request(1, "a"), request(3, "a"), request(1, "b")];
    let answers = scene.cached.claim_many(&requests).await;
    let [first, hit, miss, other] = answers.try_into().unwrap();
    assert!(matches!(first, Ok(Claim::Granted(_))));
    assert!(matches!(hit, Ok(Claim::Replay(Replay { cached: true, .. }))));
    assert!(matches!(miss, Ok(Claim::Replay(Replay { cached: false, .. }))));
    assert_eq!(other.unwrap(), Claim::Mismatch);
    assert!(scene.is_cached(3).await);
}

#[tokio::test]
async fn without_entries_nothing_is_kept() {
    let scene = scene(|it| it.entries(0));
    scene.complete(1, "done").await;
    assert!(!scene.is_cached(1).await && !scene.is_cached(1).await);
}
