//! An arbiter: PostgreSQL decides, Redis replays. Nothing runs twice when either of them fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Erasure, ErrorKind, Fingerprint, Forgetting, KeyHash,
    Nonce, OnLostOwner, Outcome, Replica, ReplicaCache, Store, Terms,
};
use semel_faults::{Fault, FaultProxy};
use semel_layers::TwoServers;
use tokio::time::sleep;

use super::load::{LayerLoad, engine, run};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn request(key: KeyHash) -> ClaimRequest {
    let terms = Terms {
        lease: HOUR.into(),
        on_lost_owner: OnLostOwner::Rerun,
        max_attempts: None,
        retention: HOUR.into(),
        failure_retention: HOUR.into(),
    };
    let (fingerprint, nonce) = (Fingerprint::of_bytes(b"this"), Nonce::random());
    ClaimRequest { key, fingerprint, nonce, terms, labels: None }
}

pub(crate) async fn completed(store: &dyn Store) -> KeyHash {
    let key = KeyHash::from_bytes(rand::random());
    let Claim::Granted(lease) = store.claim(&request(key)).await.unwrap() else {
        panic!("a new key is granted")
    };
    let outcome = Arc::new(Outcome::success("done"));
    store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    key
}

pub(crate) async fn is_copied(cache: &dyn ReplicaCache, key: &KeyHash) -> bool {
    matches!(cache.look(&[*key]).await.pop().unwrap(), Ok(Some(_)))
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_under_load_costs_no_key_and_runs_none_twice() {
    let mut servers = TwoServers::start();
    let engines = [engine(servers.arbiter().await), engine(servers.arbiter().await)];
    let load = LayerLoad::start(&engines);
    for _ in 0..2 {
        sleep(Duration::from_millis(400)).await;
        servers.redis.kill().unwrap();
        sleep(Duration::from_millis(400)).await;
        servers.redis.restart().unwrap();
    }
    let tally = load.end().await;
    assert!(tally.keys > 50, "{tally:?}");
    assert_eq!((tally.twice, tally.failed), (0, 0), "{tally:?}");
    let (store, redis) = (servers.arbiter().await, servers.front().await);
    let key = completed(&store).await;
    until("the front is filled again", async || is_copied(&redis, &key).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_do_not_wait_for_a_silent_redis() {
    let servers = TwoServers::start();
    let store = servers.arbiter().await;
    servers.redis.pause().unwrap();
    let began = Instant::now();
    for _ in 0..50 {
        completed(&store).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    servers.redis.resume().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_new_keys_fail_and_replays_are_served() {
    let mut servers = TwoServers::start();
    let (store, redis) = (servers.arbiter().await, servers.front().await);
    let key = completed(&store).await;
    until("the copy is there", async || is_copied(&redis, &key).await).await;
    let (engine, runs) = (engine(servers.arbiter().await), Arc::new(AtomicU32::new(0)));
    assert!(!run(engine.clone(), "known".into(), runs.clone()).await);
    servers.postgres.kill().unwrap();
    assert!(matches!(store.claim(&request(key)).await.unwrap(), Claim::Replay(_)));
    let new = store.claim(&request(KeyHash::from_bytes(rand::random()))).await.unwrap_err();
    assert_eq!(new.kind(), ErrorKind::Unavailable);
    assert!(!run(engine.clone(), "known".into(), runs.clone()).await, "a replay is answered");
    assert!(run(engine.clone(), "new".into(), runs.clone()).await, "a new key fails");
    assert_eq!(runs.load(SeqCst), 1);
    servers.postgres.restart().unwrap();
    until("new keys run again", async || !run(engine.clone(), "new".into(), runs.clone()).await)
        .await;
    assert_eq!(runs.load(SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cut_for_one_of_two_nodes_runs_nothing_twice() {
    let servers = TwoServers::start();
    let proxy = FaultProxy::start(servers.redis.port()).unwrap();
    let cut = servers.arbiter_through(&proxy).await;
    let engines = [engine(cut), engine(servers.arbiter().await)];
    let load = LayerLoad::start(&engines);
    for fault in [Fault::BlackHole, Fault::None, Fault::OneWay, Fault::None, Fault::Refuse] {
        sleep(Duration::from_millis(300)).await;
        proxy.set(fault);
        proxy.cut();
    }
    sleep(Duration::from_millis(300)).await;
    let tally = load.end().await;
    assert!(tally.keys > 50, "{tally:?}");
    assert_eq!((tally.twice, tally.failed), (0, 0), "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_is_an_error_until_redis_confirms() {
    let mut servers = TwoServers::start();
    let (store, redis) = (servers.arbiter().await, servers.front().await);
    let (erased, forgotten) = (completed(&store).await, completed(&store).await);
    until("the copies are there", async || {
        is_copied(&redis, &erased).await && is_copied(&redis, &forgotten).await
    })
    .await;
    servers.redis.kill().unwrap();
    let half = store.erase(&erased).await.unwrap_err();
    assert!(half.to_string().contains("erased in postgres"), "{half}");
    let half = store.forget(&forgotten).await.unwrap_err();
    assert!(half.to_string().contains("forgotten in postgres"), "{half}");
    servers.redis.restart().unwrap();
    until("redis confirms", async || matches!(store.erase(&erased).await, Ok(Erasure::Erased)))
        .await;
    assert_eq!(store.claim(&request(erased)).await.unwrap(), Claim::Gone);
    // Each connection is replaced separately.
    until("redis confirms", async || {
        matches!(store.forget(&forgotten).await, Ok(Forgetting::Forgotten))
    })
    .await;
    assert!(matches!(store.claim(&request(forgotten)).await.unwrap(), Claim::Granted(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_does_not_bring_an_erased_outcome_back() {
    let servers = TwoServers::start();
    let (store, redis) = (servers.arbiter().await, servers.front().await);
    let proxy = FaultProxy::start(servers.redis.port()).unwrap();
    let slow = servers.arbiter_through(&proxy).await;
    // The slow node completes a key; the proxy holds its copy back.
    proxy.set(Fault::Hold);
    let key = completed(&slow).await;
    assert_eq!(store.erase(&key).await.unwrap(), Erasure::Erased);
    proxy.set(Fault::None);
    until("the held copy has arrived", async || {
        matches!(slow.claim(&request(key)).await.unwrap(), Claim::Gone)
    })
    .await;
    completed_and_copied(&slow, &redis).await;
    assert!(!is_copied(&redis, &key).await);
    assert_eq!(store.claim(&request(key)).await.unwrap(), Claim::Gone);
}

/// A later copy of the same node has arrived, so every earlier one has too.
async fn completed_and_copied(store: &dyn Store, redis: &dyn ReplicaCache) {
    for _ in 0..3 {
        until("a later copy is there", async || {
            let key = completed(store).await;
            sleep(Duration::from_millis(20)).await;
            is_copied(redis, &key).await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_too_late_is_refused_even_without_a_removal_mark() {
    let servers = TwoServers::start();
    let (store, redis) = (servers.arbiter().await, servers.front().await);
    let key = completed(&store).await;
    until("the copy is there", async || is_copied(&redis, &key).await).await;
    let copy: Replica = redis.look(&[key]).await.pop().unwrap().unwrap().unwrap();
    assert!(redis.remove(&key).await.unwrap());
    assert!(!redis.remove(&key).await.unwrap(), "there is nothing left to remove");
    redis.put(std::slice::from_ref(&copy), Instant::now()).await.pop().unwrap().unwrap();
    assert!(!is_copied(&redis, &key).await, "the mark keeps it away");
    servers.redis.ask(&["FLUSHALL"]).unwrap();
    let long_ago = Instant::now().checked_sub(Replica::LATEST + Duration::from_secs(2)).unwrap();
    redis.put(std::slice::from_ref(&copy), long_ago).await.pop().unwrap().unwrap();
    assert!(!is_copied(&redis, &key).await, "it comes too late");
    redis.put(std::slice::from_ref(&copy), Instant::now()).await.pop().unwrap().unwrap();
    let found = redis.look(&[key]).await.pop().unwrap().unwrap().unwrap();
    assert_eq!(found.record.outcome, copy.record.outcome);
    assert!(copy.remaining.abs_diff(found.remaining) < Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_without_redis_and_uses_it_once_it_is_there() {
    let mut servers = TwoServers::start();
    servers.redis.kill().unwrap();
    let store = servers.arbiter().await;
    let key = completed(&store).await;
    let half = store.erase(&key).await.unwrap_err();
    assert!(half.to_string().contains("half done"), "{half}");
    servers.redis.restart().unwrap();
    let front = servers.front().await;
    until("the late front is filled", async || {
        let key = completed(&store).await;
        sleep(Duration::from_millis(20)).await;
        is_copied(&front, &key).await
    })
    .await;
}
