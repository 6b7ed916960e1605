//! Completions: in one trip where the claim is as its owner wrote it, and right wherever it is not.

mod common;

use std::{sync::Arc, time::Duration};

use redis::{aio::MultiplexedConnection, cmd};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Completion, ErrorKind, KeyHash, Labels, Nonce,
    OnLostOwner, Outcome, RenewRequest, State, Store,
};
use semel_servers::{REDIS, Running};
use semel_store_redis::RedisStore;

use self::common::{LONG, completion, granted, request};

/// A server of its own, two processes on it, and a connection that knows nothing of semel.
struct Scene {
    _server: Running,
    store: RedisStore,
    other: RedisStore,
    raw: MultiplexedConnection,
}

impl Scene {
    async fn set() -> Self {
        let server = Running::start(&REDIS).expect("redis starts");
        let store = RedisStore::connect(server.url()).await.expect("the store opens");
        let other = RedisStore::connect(server.url()).await.expect("the other opens");
        let client = redis::Client::open(server.url()).expect("the URL is right");
        let raw = client.get_multiplexed_async_connection().await.expect("the server answers");
        Self { _server: server, store, other, raw }
    }

    /// Scripts that were called so far.
    async fn scripts(&self) -> u64 {
        let mut info = cmd("INFO");
        let info = info.arg("commandstats").query_async(&mut self.raw.clone()).await;
        let info: String = info.expect("the server tells");
        let calls = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split_once(','));
        calls.map(|(calls, _)| calls.parse::<u64>().expect("a number")).sum()
    }

    /// Sets how long the server keeps a record, whatever the record says.
    async fn keep_for(&self, key: &KeyHash, time: Duration) {
        let name = [b"semel:k:", &key.as_bytes()[..]].concat();
        let mut expire = cmd("PEXPIRE");
        expire.arg(name).arg(u64::try_from(time.as_millis()).expect("a short time"));
        let found: bool = expire.query_async(&mut self.raw.clone()).await.expect("it is set");
        assert!(found, "there is a record");
    }

    async fn server_time(&self) -> u64 {
        let told = cmd("TIME").query_async(&mut self.raw.clone()).await;
        let (seconds, micros): (u64, u64) = told.expect("the server tells");
        seconds * 1000 + micros / 1000
    }
}

#[tokio::test]
async fn the_owner_completes_by_one_script() {
    let scene = Scene::set().await;
    let warm = granted(&scene.store, &request(LONG)).await;
    scene.store.complete(&completion(warm.owner, "x")).await.expect("the script is sent");
    let before = scene.scripts().await;
    for _ in 0..10 {
        let lease = granted(&scene.store, &request(LONG)).await;
        let done = scene.store.complete(&completion(lease.owner, "x")).await;
        assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    }
    assert_eq!(scene.scripts().await - before, 10);
}

#[tokio::test]
async fn a_completed_record_has_the_servers_time() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let lease = granted(&scene.store, &claim).await;
    let before = scene.server_time().await;
    scene.store.complete(&completion(lease.owner, "x")).await.expect("it is recorded");
    let after = scene.server_time().await;
    let sighting = scene.other.get(&claim.key).await.expect("it is read").expect("it is there");
    let completed_at = sighting.record.completed_at.expect("it is completed");
    assert!((before..=after).contains(&completed_at.as_millis()));
    assert_eq!(sighting.record.expires_at, Some(completed_at.after(claim.terms.retention)));
    assert!(sighting.record.claimed_at <= completed_at);
}

#[tokio::test]
async fn a_claim_that_was_renewed_is_completed() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let owner = granted(&scene.store, &claim).await.owner;
    // By another process, so that this one remembers a value that is no more.
    let renewal = RenewRequest { owner, max_run: Duration::from_secs(3600) };
    scene.other.renew(&renewal).await.expect("it is renewed");
    let done = scene.store.complete(&completion(owner, "x")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    assert!(matches!(scene.other.claim(&claim).await, Ok(Claim::Replay(_))));
}

#[tokio::test]
async fn another_process_may_complete_for_the_owner() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let owner = granted(&scene.store, &claim).await.owner;
    let done = scene.other.complete(&completion(owner, "the other's")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    // The first process still remembers the claim; what is recorded stands.
    let done = scene.store.complete(&completion(owner, "mine")).await;
    assert_eq!(done.expect("it is recorded"), Completion::Recorded);
    let Ok(Claim::Replay(replay)) = scene.store.claim(&claim).await else { panic!("not replayed") };
    assert_eq!(*replay.outcome, Outcome::success("the other's"));
}

/// The same claim by somebody else.
fn again(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { nonce: Nonce::random(), ..claim.clone() }
}

#[tokio::test]
async fn a_claim_that_is_waited_for_is_completed_by_one_script_and_told() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let owner = granted(&scene.store, &claim).await.owner;
    let mut news =
        scene.other.info().change_feed.expect("the store has a change feed").subscribe(&claim.key);
    assert!(matches!(scene.other.claim(&again(&claim)).await, Ok(Claim::Busy { .. })));
    let before = scene.scripts().await;
    scene.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    // The server does not know the script yet.
    assert_eq!(scene.scripts().await - before, 2);
    tokio::time::timeout(LONG, news.changed()).await.expect("it is told");
}

#[tokio::test]
async fn an_outcome_is_recorded_even_if_nobody_can_be_told() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let owner = granted(&scene.store, &claim).await.owner;
    assert!(matches!(scene.other.claim(&again(&claim)).await, Ok(Claim::Busy { .. })));
    let mut deny = cmd("ACL");
    deny.arg("SETUSER").arg("default").arg("-publish");
    deny.exec_async(&mut scene.raw.clone()).await.expect("the right is taken");
    scene.store.complete(&completion(owner, "x")).await.expect_err("others are not told");
    assert!(matches!(scene.other.claim(&again(&claim)).await, Ok(Claim::Replay(_))));
}

#[tokio::test]
async fn the_server_says_how_long_a_record_is_kept() {
    let scene = Scene::set().await;
    let mut claim = request(LONG);
    claim.terms.retention = Duration::from_millis(200).into();
    let owner = granted(&scene.store, &claim).await.owner;
    scene.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    // As if the owner's estimate of the server's clock had been a minute behind.
    scene.keep_for(&claim.key, LONG).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let Ok(Claim::Replay(replay)) = scene.other.claim(&again(&claim)).await else {
        panic!("not replayed")
    };
    assert!(replay.remaining > LONG / 2);
}

/// A replay sees no TTL, and whoever keeps it for what remains must not keep it longer than the server.
#[tokio::test]
async fn a_replay_does_not_outlive_its_record() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    let owner = granted(&scene.store, &claim).await.owner;
    scene.store.get(&claim.key).await.expect("the script is sent");
    let mut pause = cmd("CLIENT");
    pause.arg("PAUSE").arg(500).arg("ALL");
    pause.exec_async(&mut scene.raw.clone()).await.expect("it pauses");
    // It is told the server's time half a second after it asked.
    scene.store.get(&claim.key).await.expect("it is read");
    scene.store.complete(&completion(owner, "x")).await.expect("it is recorded");
    let Ok(Claim::Replay(replay)) = scene.other.claim(&again(&claim)).await else {
        panic!("not replayed")
    };
    assert!(replay.remaining <= claim.terms.retention.to_duration());
}

#[tokio::test]
async fn a_retention_of_nothing_keeps_nothing() {
    let scene = Scene::set().await;
    for _ in 0..20 {
        let mut claim = request(LONG);
        claim.terms.retention = Duration::ZERO.into();
        let owner = granted(&scene.store, &claim).await.owner;
        let done = scene.store.complete(&completion(owner, "x")).await;
        assert_eq!(done.expect("it is recorded"), Completion::Recorded);
        granted(&scene.store, &again(&claim)).await;
    }
}

#[tokio::test]
async fn a_failure_is_kept_as_long_as_failures_are() {
    let scene = Scene::set().await;
    let mut claim = request(LONG);
    claim.terms.failure_retention = Duration::from_secs(7).into();
    claim.labels = Some(Labels::new("shop", "somebody", "charge", "order-42"));
    let owner = granted(&scene.store, &claim).await.owner;
    // Large enough to be compressed.
    let outcome = Arc::new(Outcome::failure("refused", "no money ".repeat(1000)));
    let request = CompleteRequest { owner, outcome: outcome.clone() };
    scene.store.complete(&request).await.expect("it is recorded");
    let record =
        scene.other.get(&claim.key).await.expect("it is read").expect("it is there").record;
    assert_eq!((record.state, record.labels), (State::Completed, claim.labels));
    assert_eq!(record.outcome, Some(outcome));
    let kept = record.expires_at.zip(record.completed_at).map(|(end, begin)| end.since(begin));
    assert_eq!(kept, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn claims_that_end_together_do_not_disturb_each_other() {
    let scene = Scene::set().await;
    let claims: Vec<ClaimRequest> = (0..12).map(|_| request(LONG)).collect();
    let mut owners = Vec::new();
    for claim in &claims {
        owners.push(granted(&scene.store, claim).await.owner);
    }
    let name = |at: usize| [b"semel:k:", &claims[at].key.as_bytes()[..]].concat();
    let mut raw = scene.raw.clone();
    cmd("DEL").arg(name(3)).arg(name(5)).exec_async(&mut raw).await.expect("they are deleted");
    cmd("LPUSH").arg(name(5)).arg("x").exec_async(&mut raw).await.expect("it is a list");
    let renewal = RenewRequest { owner: owners[7], max_run: Duration::from_secs(3600) };
    scene.other.renew(&renewal).await.expect("it is renewed");
    assert!(matches!(scene.other.claim(&twin_of(&claims[9])).await, Ok(Claim::Busy { .. })));
    let ends = owners.iter().map(|owner| {
        let store = scene.store.clone();
        let ending = completion(*owner, "x");
        async move { store.complete(&ending).await }
    });
    let before = scene.scripts().await;
    let ends = futures_util::future::join_all(ends).await;
    assert!(scene.scripts().await - before < 12, "each came alone");
    for (at, end) in ends.into_iter().enumerate() {
        match at {
            3 => assert_eq!(end.expect("it is answered"), Completion::Missing),
            5 => assert_eq!(end.expect_err("it is a list").kind(), ErrorKind::Corrupt),
            _ => assert_eq!(end.expect("it is recorded"), Completion::Recorded, "{at}"),
        }
    }
    for at in [0, 7, 9, 11] {
        assert!(matches!(scene.other.claim(&twin_of(&claims[at])).await, Ok(Claim::Replay(_))));
    }
}

fn twin_of(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { nonce: Nonce::random(), ..claim.clone() }
}

/// A claim of the lost owner itself takes a trip less than one that puts its key on hold, and must not overtake it.
#[tokio::test]
async fn claims_of_one_key_in_a_batch_happen_in_their_order() {
    let scene = Scene::set().await;
    for number in 0..8 {
        let mut owner = request(Duration::from_millis(50));
        owner.terms.on_lost_owner = OnLostOwner::Hold;
        granted(&scene.store, &owner).await;
        let over = scene.server_time().await + 60;
        while scene.server_time().await < over {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let other = ClaimRequest { nonce: Nonce::random(), ..owner.clone() };
        for answer in scene.store.claim_many(&[other, owner]).await {
            assert_eq!(answer.expect("the server answers"), Claim::Unknown, "{number}");
        }
    }
}
