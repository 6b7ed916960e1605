//! Cleanup, indexes and chores: what is stuck is found, and nothing holds them up.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod common;

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection, cmd};
use semel_core::{
    AbandonRequest, Claim, ClaimRequest, Decision, ErrorKind, Fingerprint, KeyHash, ListQuery,
    Nonce, OnLostOwner, Outcome, Resolution, ResolveRequest, Store,
};
use semel_servers::{REDIS, Running};
use semel_store_redis::RedisStore;
use tokio::time::timeout;

use self::common::{LONG, completion, granted, request, until};

const SHORT: Duration = Duration::from_millis(20);

/// A server of its own, a store there, and a connection that knows nothing of semel.
struct Scene {
    server: Running,
    store: RedisStore,
    raw: MultiplexedConnection,
}

impl Scene {
    async fn set() -> Self {
        let server = Running::start(&REDIS).unwrap();
        let builder = RedisStore::builder(server.url());
        let store = builder.call_timeout(Duration::from_secs(1)).connect().await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        Self { server, store, raw }
    }

    async fn ask<T: FromRedisValue>(&self, command: &[&[u8]]) -> T {
        let mut asked = cmd(std::str::from_utf8(command[0]).unwrap());
        asked.arg(&command[1..]);
        asked.query_async(&mut self.raw.clone()).await.unwrap()
    }

    async fn entries(&self, index: &str) -> Vec<(Vec<u8>, u64)> {
        self.ask(&[b"ZRANGE", index.as_bytes(), b"0", b"-1", b"WITHSCORES"]).await
    }

    /// Lets a minute pass for an index.
    async fn age(&self, index: &str) {
        let entries = self.entries(index).await;
        let mut command = vec![b"ZADD".to_vec(), index.as_bytes().to_vec()];
        for (key, score) in entries {
            command.extend([(score - 60_000).to_string().into_bytes(), key]);
        }
        let _: u64 = self.ask(&command.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    }

    async fn lapsed(&self, claim: &ClaimRequest) {
        until("its lease is over", async || {
            let seen = self.store.get(&claim.key).await.unwrap().unwrap();
            !seen.record.is_leased(seen.at)
        })
        .await;
    }

    async fn unknown(&self, claim: &ClaimRequest) {
        let owner = granted(&self.store, claim).await.owner;
        let backoff = Duration::ZERO;
        self.store.abandon(&AbandonRequest { owner, backoff }).await.unwrap();
    }
}

fn hold(lease: Duration) -> ClaimRequest {
    let mut claim = request(lease);
    claim.terms.on_lost_owner = OnLostOwner::Hold;
    claim
}

fn name(key: &KeyHash) -> Vec<u8> {
    [b"semel:k:", &key.as_bytes()[..]].concat()
}

/// A claim on hold is found by cleanup although Redis knows no "all claims on hold", and what has ended
/// is looked at together: a trip for each of them would take seconds.
#[tokio::test]
async fn cleanup_finds_lost_owners_behind_many_others_in_a_few_trips() {
    let scene = Scene::set().await;
    for _ in 0..600 {
        let lease = granted(&scene.store, &hold(SHORT)).await;
        scene.store.complete(&completion(lease.owner, "done")).await.unwrap();
    }
    let lost = hold(SHORT);
    granted(&scene.store, &lost).await;
    scene.lapsed(&lost).await;
    let reads = || {
        let stats = scene.server.ask(&["INFO", "stats"]).unwrap();
        let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        reads.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = reads();
    assert_eq!(scene.store.purge(10).await.unwrap().held, 1);
    let trips = reads() - before;
    assert!(trips < 100, "{trips} trips for 600 claims that have ended");
    assert_eq!(scene.store.stats().await.unwrap().unknown, 1);
}

/// Whatever has ended leaves the index of claims on hold, however often cleanup comes.
#[tokio::test]
async fn what_has_ended_leaves_the_index() {
    let scene = Scene::set().await;
    let lease = granted(&scene.store, &hold(SHORT)).await;
    scene.store.complete(&completion(lease.owner, "done")).await.unwrap();
    let first = scene.entries("semel:held").await[0].1;
    until("it was looked at", async || {
        scene.store.purge(10).await.unwrap();
        scene.entries("semel:held").await[0].1 > first
    })
    .await;
    scene.age("semel:held").await;
    until("it is gone", async || {
        scene.store.purge(10).await.unwrap();
        scene.entries("semel:held").await.is_empty()
    })
    .await;
}

/// A claim that comes between two looks is not taken for one that has ended.
#[tokio::test]
async fn a_new_claim_stays_in_the_index() {
    let scene = Scene::set().await;
    let claim = hold(SHORT);
    let lease = granted(&scene.store, &claim).await;
    let none = semel_core::Effect::None;
    let release = semel_core::ReleaseRequest { owner: lease.owner, effect: none };
    scene.store.release(&release).await.unwrap();
    let first = scene.entries("semel:held").await[0].1;
    until("it was looked at", async || {
        scene.store.purge(10).await.unwrap();
        scene.entries("semel:held").await[0].1 > first
    })
    .await;
    granted(&scene.store, &ClaimRequest { nonce: Nonce::random(), ..claim.clone() }).await;
    scene.lapsed(&claim).await;
    until("it is found", async || scene.store.purge(10).await.unwrap().held == 1).await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hold_up_cleanup() {
    let scene = Scene::set().await;
    let (bad, good) = (hold(SHORT), hold(SHORT));
    granted(&scene.store, &bad).await;
    granted(&scene.store, &good).await;
    let _: u64 = scene.ask(&[b"SETRANGE", &name(&bad.key), b"1", b"\x09"]).await;
    scene.lapsed(&good).await;
    until("the other is found", async || scene.store.purge(10).await.unwrap().held == 1).await;
}

/// However many they are.
#[tokio::test]
async fn what_is_no_longer_stuck_leaves_the_index_at_once() {
    let scene = Scene::set().await;
    let stuck = hold(LONG);
    scene.unknown(&stuck).await;
    scene.age("semel:stuck").await;
    let mut add = vec![b"ZADD".to_vec(), b"semel:stuck".to_vec()];
    for _ in 0..1000 {
        add.extend([b"2".to_vec(), rand::random::<[u8; 32]>().to_vec()]);
    }
    let _: u64 = scene.ask(&add.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    scene.store.purge(2000).await.unwrap();
    let left = scene.entries("semel:stuck").await;
    let left: Vec<_> = left.into_iter().map(|(key, _)| key).collect();
    assert!(left == [stuck.key.as_bytes()], "{} are left", left.len());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let scene = Scene::set().await;
    for (at, written) in [(0, b"\x20"), (1, b"\x09")] {
        let (bad, good) = (request(LONG), request(LONG));
        granted(&scene.store, &bad).await;
        granted(&scene.store, &good).await;
        let at = u8::to_string(&at).into_bytes();
        let _: u64 = scene.ask(&[b"SETRANGE", &name(&bad.key), &at, written]).await;
        let query = ListQuery { limit: 10, ..ListQuery::default() };
        let listed = scene.store.list(&query).await.unwrap();
        assert_eq!(listed.into_iter().map(|record| record.key).collect::<Vec<_>>(), [good.key]);
        let _: String = scene.ask(&[b"FLUSHDB"]).await;
    }
}

/// Nobody has room, and still the key waits for an operator where operators look.
#[tokio::test]
async fn what_is_stuck_on_a_full_server_is_found() {
    let scene = Scene::set().await;
    let (lost, given_up) = (hold(SHORT), hold(LONG));
    granted(&scene.store, &lost).await;
    let owner = granted(&scene.store, &given_up).await.owner;
    scene.lapsed(&lost).await;
    scene.server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let again = ClaimRequest { nonce: Nonce::random(), ..lost.clone() };
    assert_eq!(scene.store.claim(&again).await.unwrap(), Claim::Unknown);
    let backoff = Duration::ZERO;
    scene.store.abandon(&AbandonRequest { owner, backoff }).await.unwrap();
    assert_eq!(scene.store.stats().await.unwrap().unknown, 2);
}

/// Cleanup moves the entries of an index while others read it.
#[tokio::test(flavor = "multi_thread")]
async fn stuck_keys_are_counted_while_cleanup_runs() {
    let scene = Arc::new(Scene::set().await);
    for _ in 0..300 {
        scene.unknown(&hold(LONG)).await;
    }
    let cleanup = tokio::spawn({
        let scene = scene.clone();
        async move {
            loop {
                scene.age("semel:stuck").await;
                scene.store.purge(10).await.unwrap();
            }
        }
    });
    for _ in 0..40 {
        assert_eq!(scene.store.stats().await.unwrap().unknown, 300);
    }
    cleanup.abort();
}

#[tokio::test]
async fn chores_end_when_the_server_is_silent_and_work_when_it_is_back() {
    let scene = Scene::set().await;
    scene.server.pause().unwrap();
    let answer = timeout(Duration::from_secs(20), scene.store.stats()).await;
    assert_eq!(answer.expect("it ends").unwrap_err().kind(), ErrorKind::Unavailable);
    scene.server.resume().unwrap();
    until("it is back", async || scene.store.stats().await.is_ok()).await;
}

#[tokio::test]
async fn chores_work_again_after_a_restart() {
    let mut scene = Scene::set().await;
    scene.server.kill().unwrap();
    scene.server.restart().unwrap();
    until("it is back", async || scene.store.stats().await.is_ok()).await;
}

/// Two operators decide at once, and differently: one of them is told that it is done.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_decisions_one_is_done() {
    let scene = Scene::set().await;
    let other = RedisStore::connect(scene.server.url()).await.unwrap();
    for _ in 0..300 {
        let claim = hold(LONG);
        scene.unknown(&claim).await;
        let record = scene.store.get(&claim.key).await.unwrap().unwrap().record;
        let decide = async |store: &RedisStore, said: &str| {
            let outcome = Arc::new(Outcome::success(said.to_owned()));
            let request = ResolveRequest {
                key: claim.key,
                seen_nonce: record.nonce,
                seen_token: record.token,
                decision: Decision::Complete(outcome.clone()),
            };
            (store.resolve(&request).await.unwrap(), outcome)
        };
        let (one, two) = tokio::join!(decide(&scene.store, "one"), decide(&other, "two"));
        let done: Vec<_> = [one, two].into_iter().filter(|it| it.0 == Resolution::Done).collect();
        assert_eq!(done.len(), 1, "one decision stands");
        let record = scene.store.get(&claim.key).await.unwrap().unwrap().record;
        assert_eq!(record.outcome.as_ref(), Some(&done[0].1));
    }
}

#[tokio::test]
async fn a_claim_that_lost_its_ttl_is_not_taken_over() {
    let scene = Scene::set().await;
    let claim = request(LONG);
    granted(&scene.store, &claim).await;
    let _: u64 = scene.ask(&[b"PERSIST", &name(&claim.key)]).await;
    let other = ClaimRequest { nonce: Nonce::random(), ..claim };
    let error = scene.store.claim(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// Who asks for a key in vain does not put off its cleanup.
#[tokio::test]
async fn a_contender_does_not_hide_a_lost_owner() {
    let scene = Scene::set().await;
    let mut claim = request(SHORT);
    claim.terms.on_lost_owner = OnLostOwner::Hold;
    granted(&scene.store, &claim).await;
    scene.lapsed(&claim).await;
    let mut other = ClaimRequest { nonce: Nonce::random(), ..claim.clone() };
    other.fingerprint = Fingerprint::of_bytes(b"something else");
    other.terms.lease = LONG.into();
    assert_eq!(scene.store.claim(&other).await.unwrap(), Claim::Mismatch);
    assert_eq!(scene.store.purge(10).await.unwrap().held, 1);
}
