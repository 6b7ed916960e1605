//! Tests of the cached layer: what it caches, and when an entry ends.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::*;
use crate::{
    ChangeFeed, Effect, Fingerprint, Lease, ManualClock, MemoryStore, Nonce, OnLostOwner, Outcome,
    Replay, Span, Terms,
};

const RETENTION: Duration = Duration::from_secs(3600);

/// A cached store with a change feed, and direct access to the store behind the cache.
struct CacheTest {
    cached: Cached<StoreWithFeed>,
    behind: MemoryStore,
    clock: ManualClock,
    feed: ChangeFeed,
}

/// The memory store with a change feed.
#[derive(Debug)]
struct StoreWithFeed {
    store: MemoryStore,
    feed: Option<ChangeFeed>,
}

macro_rules! store_with_feed {
    ($($step:ident($request:ty) -> $reply:ty;)*) => {
        #[async_trait]
        impl Store for StoreWithFeed {
            fn info(&self) -> StoreInfo {
                StoreInfo { change_feed: self.feed.clone(), ..self.store.info() }
            }
            $(async fn $step(&self, request: $request) -> $reply {
                self.store.$step(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.store.stats().await
            }
        }
    };
}
crate::__store_steps!(store_with_feed);

fn cache_test(
    set: impl FnOnce(CachedBuilder<StoreWithFeed>) -> CachedBuilder<StoreWithFeed>,
) -> CacheTest {
    cache_test_with(Some(ChangeFeed::new()), set)
}

fn cache_test_with(
    feed: Option<ChangeFeed>,
    set: impl FnOnce(CachedBuilder<StoreWithFeed>) -> CachedBuilder<StoreWithFeed>,
) -> CacheTest {
    let clock = ManualClock::new();
    let behind = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = StoreWithFeed { store: behind.clone(), feed: feed.clone() };
    let cached = set(Cached::builder(store).clock(clock.clone())).build();
    CacheTest { cached, behind, clock, feed: feed.unwrap_or_default() }
}

fn request(key: u8, content: &str) -> ClaimRequest {
    let terms = Terms {
        lease: Span::from_millis(30_000),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: RETENTION.into(),
        failure_retention: RETENTION.into(),
    };
    ClaimRequest {
        key: KeyHash::from_bytes([key; 32]),
        fingerprint: Fingerprint::of_bytes(content.as_bytes()),
        nonce: Nonce::random(),
        terms,
        labels: None,
    }
}

impl CacheTest {
    async fn granted(&self, key: u8) -> Lease {
        match self.cached.claim(&request(key, "a")).await.unwrap() {
            Claim::Granted(lease) => lease,
            claim => panic!("{claim:?}"),
        }
    }

    async fn complete(&self, key: u8, body: impl Into<Bytes>) {
        let owner = self.granted(key).await.owner;
        let outcome = Arc::new(Outcome::success(body));
        let reply = self.cached.complete(&CompleteRequest { owner, outcome }).await.unwrap();
        assert_eq!(reply, Completion::Recorded);
    }

    /// True when the cache replied, and not the store behind it.
    async fn is_cached(&self, key: u8) -> bool {
        match self.cached.claim(&request(key, "a")).await.unwrap() {
            Claim::Replay(replay) => replay.cached,
            claim => panic!("{claim:?}"),
        }
    }
}

#[tokio::test]
async fn the_second_replay_comes_from_memory_and_equals_the_first() {
    let test = cache_test(|it| it);
    test.complete(1, "done").await;
    test.clock.advance(Duration::from_secs(5));
    let replay = async || match test.cached.claim(&request(1, "a")).await.unwrap() {
        Claim::Replay(replay) => replay,
        claim => panic!("{claim:?}"),
    };
    let (first, second) = (replay().await, replay().await);
    assert!(!first.cached && second.cached);
    assert_eq!(Replay { cached: false, ..second }, first);
}

#[tokio::test]
async fn only_recorded_outcomes_are_cached() {
    let test = cache_test(|it| it);
    let owner = test.granted(1).await.owner;
    assert!(matches!(test.cached.claim(&request(1, "a")).await.unwrap(), Claim::Busy { .. }));
    assert_eq!(test.cached.entries(), 0, "an owned key");
    test.cached.release(&ReleaseRequest { owner, effect: Effect::None }).await.unwrap();
    test.complete(1, "done").await;
    assert_eq!(
        test.cached.entries(),
        0,
        "an outcome is cached when it is replayed, not when it is recorded"
    );
    assert!(!test.is_cached(1).await);
    assert_eq!(test.cached.entries(), 1);
}

#[tokio::test]
async fn a_request_with_another_fingerprint_goes_to_the_store() {
    let test = cache_test(|it| it);
    test.complete(1, "done").await;
    assert!(!test.is_cached(1).await && test.is_cached(1).await);
    assert_eq!(test.cached.claim(&request(1, "b")).await.unwrap(), Claim::Mismatch);
    assert!(test.is_cached(1).await, "the entry is still there");
}

#[tokio::test]
async fn an_entry_ends_with_its_ttl_and_with_its_record() {
    let test = cache_test(|it| it.ttl(Duration::from_secs(60)));
    test.complete(1, "done").await;
    test.clock.advance(RETENTION - Duration::from_secs(90));
    assert!(!test.is_cached(1).await && test.is_cached(1).await);
    test.clock.advance(Duration::from_secs(60));
    assert!(!test.is_cached(1).await, "its time to live has ended");
    test.clock.advance(Duration::from_millis(29_999));
    assert!(test.is_cached(1).await);
    test.clock.advance(Duration::from_millis(1));
    test.granted(1).await;
}

#[tokio::test]
async fn an_empty_outcome_lives_as_long_as_its_record_while_the_feed_is_connected() {
    let feed = ChangeFeed::new();
    let _connected = feed.connected();
    for (feed, lives) in [(Some(feed), true), (Some(ChangeFeed::new()), false), (None, false)] {
        let test = cache_test_with(feed, |it| it);
        test.complete(1, "").await;
        assert!(!test.is_cached(1).await && test.is_cached(1).await);
        test.clock.advance(RETENTION - Duration::from_millis(1));
        assert_eq!(test.is_cached(1).await, lives);
        test.clock.advance(Duration::from_millis(1));
        test.granted(1).await;
    }
}

#[tokio::test]
async fn an_empty_outcome_is_invalidated_when_the_feed_is_disconnected() {
    let test = cache_test(|it| it);
    let connection = test.feed.connected();
    test.complete(1, "").await;
    assert!(!test.is_cached(1).await && test.is_cached(1).await);
    drop(connection);
    assert!(!test.is_cached(1).await && test.is_cached(1).await);
    test.clock.advance(CachedBuilder::<MemoryStore>::TTL);
    assert!(!test.is_cached(1).await);
}

#[tokio::test]
async fn an_operators_change_in_this_process_invalidates_at_once() {
    let test = cache_test(|it| it);
    for key in 1..=2 {
        test.complete(key, "done").await;
        assert!(!test.is_cached(key).await && test.is_cached(key).await);
    }
    test.cached.erase(&KeyHash::from_bytes([1; 32])).await.unwrap();
    assert_eq!(test.cached.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    test.cached.forget(&KeyHash::from_bytes([2; 32])).await.unwrap();
    test.granted(2).await;
}

#[tokio::test]
async fn a_notification_invalidates_its_key_and_a_lost_connection_invalidates_all() {
    let test = cache_test(|it| it);
    for key in 1..=3 {
        test.complete(key, "done").await;
        assert!(!test.is_cached(key).await && test.is_cached(key).await);
    }
    test.behind.erase(&KeyHash::from_bytes([1; 32])).await.unwrap();
    assert!(test.is_cached(1).await, "the feed has not notified yet");
    test.feed.notify(&KeyHash::from_bytes([1; 32]));
    assert_eq!(test.cached.claim(&request(1, "a")).await.unwrap(), Claim::Gone);
    assert!(test.is_cached(2).await);
    test.feed.notify_all();
    assert!(!test.is_cached(2).await && !test.is_cached(3).await);
}

#[tokio::test]
async fn a_replay_from_before_a_change_is_not_cached_after_it() {
    let test = cache_test(|it| it);
    test.complete(1, "done").await;
    let request = request(1, "a");
    let Lookup::Miss(miss) = test.cached.get_cached(&request) else {
        panic!("nothing is cached yet")
    };
    let replay = test.behind.claim(&request).await;
    test.cached.erase(&request.key).await.unwrap();
    test.cached.insert(&request, miss, &replay);
    assert_eq!(test.cached.claim(&request).await.unwrap(), Claim::Gone);
}

#[tokio::test]
async fn the_least_recently_used_outcome_is_removed_first() {
    let test = cache_test(|it| it.entries(3));
    for key in 1..=3 {
        test.complete(key, "done").await;
        test.is_cached(key).await;
    }
    assert!(test.is_cached(1).await);
    test.complete(4, "done").await;
    test.is_cached(4).await;
    assert_eq!(test.cached.entries(), 3);
    assert!(test.is_cached(1).await && test.is_cached(3).await && test.is_cached(4).await);
    assert!(!test.is_cached(2).await);
}

#[tokio::test]
async fn the_cached_bytes_are_bounded_and_a_too_large_outcome_removes_no_other() {
    let test = cache_test(|it| it.entries(10).bytes(2000));
    for key in 1..=5 {
        test.complete(key, "done").await;
        test.is_cached(key).await;
    }
    let entries = test.cached.entries();
    assert!((2..=5).contains(&entries), "{entries}");
    test.complete(9, "x".repeat(4000)).await;
    assert!(!test.is_cached(9).await && !test.is_cached(9).await);
    assert_eq!(test.cached.entries(), entries);
}

#[tokio::test]
async fn a_batch_sends_only_misses_to_the_store() {
    let test = cache_test(|it| it);
    for key in [1, 3] {
        test.complete(key, "done").await;
    }
    test.is_cached(1).await;
    let requests = [request(2, "a"), request(1, "a"), request(3, "a"), request(1, "b")];
    let replies = test.cached.claim_many(&requests).await;
    let [first, hit, miss, other] = replies.try_into().unwrap();
    assert!(matches!(first, Ok(Claim::Granted(_))));
    assert!(matches!(hit, Ok(Claim::Replay(Replay { cached: true, .. }))));
    assert!(matches!(miss, Ok(Claim::Replay(Replay { cached: false, .. }))));
    assert_eq!(other.unwrap(), Claim::Mismatch);
    assert!(test.is_cached(3).await);
}

#[tokio::test]
async fn with_no_entries_allowed_nothing_is_cached() {
    let test = cache_test(|it| it.entries(0));
    test.complete(1, "done").await;
    assert!(!test.is_cached(1).await && !test.is_cached(1).await);
}
