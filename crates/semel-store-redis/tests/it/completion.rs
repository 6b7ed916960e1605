//! Completions take one round trip if the claim has not changed since its owner wrote it, and are correct if it has.

use std::{sync::Arc, time::Duration};

use redis::{aio::MultiplexedConnection, cmd};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, KeyHash, Labels, Nonce,
    OnLostOwner, Outcome, RenewRequest, State, Store,
};
use semel_servers::{REDIS, Running};
use semel_store_redis::RedisStore;

use crate::common::{LONG, completion, granted, request};

/// A server that no other test uses, two stores on it, and a plain connection to it.
struct CompletionFixture {
    _server: Running,
    store: RedisStore,
    other: RedisStore,
    raw: MultiplexedConnection,
}

impl CompletionFixture {
    async fn start() -> Self {
        let server = Running::start(&REDIS).expect("redis starts");
        let store = RedisStore::connect(server.url()).await.expect("the store opens");
        let other = RedisStore::connect(server.url()).await.expect("the other opens");
        let client = redis::Client::open(server.url()).expect("the URL is right");
        let raw = client.get_multiplexed_async_connection().await.expect("the server answers");
        Self { _server: server, store, other, raw }
    }

    /// The number of script calls so far.
    async fn script_calls(&self) -> u64 {
        let mut info = cmd("INFO");
        let info = info.arg("commandstats").query_async(&mut self.raw.clone()).await;
        let info: String = info.expect("the server replies");
        let calls = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split_once(','));
        calls.map(|(calls, _)| calls.parse::<u64>().expect("a number")).sum()
    }

    /// Sets the TTL of a record.
    async fn keep_for(&self, key: &KeyHash, time: Duration) {
        let name = [b"semel:k:", &key.as_bytes()[..]].concat();
        let mut expire = cmd("PEXPIRE");
        expire.arg(name).arg(u64::try_from(time.as_millis()).expect("a short time"));
        let found: bool = expire.query_async(&mut self.raw.clone()).await.expect("it is set");
        assert!(found, "there is a record");
    }

    async fn server_time(&self) -> u64 {
        let time = cmd("TIME").query_async(&mut self.raw.clone()).await;
        let (seconds, micros): (u64, u64) = time.expect("the server replies");
        seconds * 1000 + micros / 1000
    }
}

#[tokio::test]
async fn a_completion_by_the_owner_is_one_script_call() {
    let fixture = CompletionFixture::start().await;
    let warm = granted(&fixture.store, &request(LONG)).await;
    fixture.store.complete(&completion(warm.owner, "x")).await.expect("the script is sent");
    let before = fixture.script_calls().await;
    for _ in 0..10 {
        let lease = granted(&fixture.store, &request(LONG)).await;
        let done = fixture.store.complete(&completion(lease.owner, "x")).await;
        assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    }
    assert_eq!(fixture.script_calls().await - before, 10);
}

#[tokio::test]
async fn a_completed_record_has_the_servers_time() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let lease = granted(&fixture.store, &claim).await;
    let before = fixture.server_time().await;
    fixture.store.complete(&completion(lease.owner, "x")).await.expect("it is recorded");
    let after = fixture.server_time().await;
    let sighting = fixture.other.get(&claim.key).await.expect("it is read").expect("it is there");
    let completed_at = sighting.record.completed_at.expect("it is completed");
    assert!((before..=after).contains(&completed_at.as_millis()));
    assert_eq!(sighting.record.expires_at, Some(completed_at.after(claim.terms.retention)));
    assert!(sighting.record.claimed_at <= completed_at);
}

#[tokio::test]
async fn a_claim_that_another_process_renewed_is_completed() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let owner = granted(&fixture.store, &claim).await.owner;
    // By the other store, so that this one remembers an old value.
    let renewal = RenewRequest::new(owner, Duration::from_secs(3600));
    fixture.other.renew(&renewal).await.expect("it is renewed");
    let done = fixture.store.complete(&completion(owner, "x")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    assert!(matches!(fixture.other.claim(&claim).await, Ok(Claim::Replay(_))));
}

#[tokio::test]
async fn another_process_may_complete_for_the_owner() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let owner = granted(&fixture.store, &claim).await.owner;
    let done = fixture.other.complete(&completion(owner, "the other's")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    // The first process still remembers the claim; what is recorded stands.
    let done = fixture.store.complete(&completion(owner, "mine")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    let Ok(Claim::Replay(replay)) = fixture.store.claim(&claim).await else {
        panic!("not replayed")
    };
    assert_eq!(*replay.outcome, Outcome::success("the other's"));
}

/// The same claim by another owner.
fn other_claim(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { nonce: Nonce::random(), ..claim.clone() }
}

#[tokio::test]
async fn the_completion_of_a_claim_with_waiters_is_one_script_call_and_notifies_them() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let owner = granted(&fixture.store, &claim).await.owner;
    let mut subscriber = fixture
        .other
        .info()
        .change_feed
        .expect("the store has a change feed")
        .subscribe(&claim.key);
    assert!(matches!(fixture.other.claim(&other_claim(&claim)).await, Ok(Claim::Busy { .. })));
    let before = fixture.script_calls().await;
    fixture.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    // The server does not have the script yet, so it is sent twice.
    assert_eq!(fixture.script_calls().await - before, 2);
    tokio::time::timeout(LONG, subscriber.changed()).await.expect("the subscriber is notified");
}

#[tokio::test]
async fn an_outcome_is_recorded_even_if_the_user_may_not_publish() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let owner = granted(&fixture.store, &claim).await.owner;
    assert!(matches!(fixture.other.claim(&other_claim(&claim)).await, Ok(Claim::Busy { .. })));
    let mut deny = cmd("ACL");
    deny.arg("SETUSER").arg("default").arg("-publish");
    deny.exec_async(&mut fixture.raw.clone()).await.expect("the right is taken");
    fixture
        .store
        .complete(&completion(owner, "x"))
        .await
        .expect_err("the waiters are not notified");
    assert!(matches!(fixture.other.claim(&other_claim(&claim)).await, Ok(Claim::Replay(_))));
}

#[tokio::test]
async fn the_ttl_on_the_server_decides_how_long_a_record_is_kept() {
    let fixture = CompletionFixture::start().await;
    let mut claim = request(LONG);
    claim.terms.retention = Duration::from_millis(200).into();
    let owner = granted(&fixture.store, &claim).await.owner;
    fixture.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    // As if the owner's estimate of the server's clock had been a minute behind.
    fixture.keep_for(&claim.key, LONG).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let Ok(Claim::Replay(replay)) = fixture.other.claim(&other_claim(&claim)).await else {
        panic!("not replayed")
    };
    assert!(replay.remaining > LONG / 2);
}

/// The reply of a replay contains no TTL. A cache that keeps the outcome for the remaining time must not keep it longer
/// than the server.
#[tokio::test]
async fn the_remaining_time_of_a_replay_is_at_most_the_retention() {
    let fixture = CompletionFixture::start().await;
    let claim = request(LONG);
    let owner = granted(&fixture.store, &claim).await.owner;
    fixture.store.get(&claim.key).await.expect("the script is sent");
    let mut pause = cmd("CLIENT");
    pause.arg("PAUSE").arg(500).arg("ALL");
    pause.exec_async(&mut fixture.raw.clone()).await.expect("it pauses");
    // The reply with the server's time comes half a second after the request.
    fixture.store.get(&claim.key).await.expect("it is read");
    fixture.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    let Ok(Claim::Replay(replay)) = fixture.other.claim(&other_claim(&claim)).await else {
        panic!("not replayed")
    };
    assert!(replay.remaining <= claim.terms.retention.to_duration());
}

#[tokio::test]
async fn a_retention_of_zero_keeps_no_record() {
    let fixture = CompletionFixture::start().await;
    for _ in 0..20 {
        let mut claim = request(LONG);
        claim.terms.retention = Duration::ZERO.into();
        let owner = granted(&fixture.store, &claim).await.owner;
        let done = fixture.store.complete(&completion(owner, "x")).await;
        assert_eq!(done.expect("it is recorded"), Completion::Recorded);
        granted(&fixture.store, &other_claim(&claim)).await;
    }
}

#[tokio::test]
async fn a_failure_is_kept_for_the_failure_retention() {
    let fixture = CompletionFixture::start().await;
    let mut claim = request(LONG);
    claim.terms.failure_retention = Duration::from_secs(7).into();
    claim.labels = Some(Labels::new("shop", "ada", "charge", "order-42"));
    let owner = granted(&fixture.store, &claim).await.owner;
    // Large enough to be compressed.
    let outcome = Arc::new(Outcome::failure("refused", "no money ".repeat(1000)));
    let request = CompleteRequest { owner, outcome: outcome.clone() };
    fixture.store.complete(&request).await.expect("it is recorded");
    let record =
        fixture.other.get(&claim.key).await.expect("it is read").expect("it is there").record;
    assert_eq!((record.state, record.labels), (State::Completed, claim.labels));
    assert_eq!(record.outcome, Some(outcome));
    let kept = record.expires_at.zip(record.completed_at).map(|(end, begin)| end.since(begin));
    assert_eq!(kept, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn completions_in_one_script_do_not_affect_each_other() {
    let fixture = CompletionFixture::start().await;
    let claims: Vec<ClaimRequest> = (0..12).map(|_| request(LONG)).collect();
    let mut owners = Vec::new();
    for claim in &claims {
        owners.push(granted(&fixture.store, claim).await.owner);
    }
    let name = |at: usize| [b"semel:k:", &claims[at].key.as_bytes()[..]].concat();
    let mut raw = fixture.raw.clone();
    cmd("DEL").arg(name(3)).arg(name(5)).exec_async(&mut raw).await.expect("they are deleted");
    cmd("LPUSH").arg(name(5)).arg("x").exec_async(&mut raw).await.expect("it is a list");
    let renewal = RenewRequest::new(owners[7], Duration::from_secs(3600));
    fixture.other.renew(&renewal).await.expect("it is renewed");
    assert!(matches!(fixture.other.claim(&other_claim(&claims[9])).await, Ok(Claim::Busy { .. })));
    let completions = owners.iter().map(|owner| {
        let store = fixture.store.clone();
        let ending = completion(*owner, "x");
        async move { store.complete(&ending).await }
    });
    let before = fixture.script_calls().await;
    let completions = futures_util::future::join_all(completions).await;
    assert!(fixture.script_calls().await - before < 12, "the completions were not sent together");
    for (at, completion) in completions.into_iter().enumerate() {
        match at {
            3 => assert_eq!(completion.expect("it is answered"), Completion::Missing),
            5 => assert_eq!(completion.expect_err("it is a list").kind(), ErrorKind::Corrupt),
            _ => assert_eq!(completion.expect("it is recorded"), Completion::Recorded, "{at}"),
        }
    }
    for at in [0, 7, 9, 11] {
        assert!(matches!(
            fixture.other.claim(&other_claim(&claims[at])).await,
            Ok(Claim::Replay(_))
        ));
    }
}

/// A claim of the lost owner itself needs one trip less than an earlier claim that puts the key on hold, and must not
/// overtake it.
#[tokio::test]
async fn claims_of_one_key_in_a_batch_are_executed_in_their_order() {
    let fixture = CompletionFixture::start().await;
    for number in 0..8 {
        let mut owner = request(Duration::from_millis(50));
        owner.terms.on_lost_owner = OnLostOwner::Hold;
        granted(&fixture.store, &owner).await;
        let until = async |end| {
            while fixture.server_time().await < end {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        until(fixture.server_time().await + 60).await;
        let other = ClaimRequest { nonce: Nonce::random(), ..owner.clone() };
        let contested = fixture.other.claim(&other).await;
        assert!(matches!(contested, Ok(Claim::Busy { .. })), "{contested:?}");
        until(fixture.server_time().await + 20).await;
        for answer in fixture.store.claim_many(&[other, owner]).await {
            assert_eq!(answer.expect("the server answers"), Claim::Unknown, "{number}");
        }
    }
}
