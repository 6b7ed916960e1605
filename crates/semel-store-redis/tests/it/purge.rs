//! Purge, indexes and statistics: keys with a lost owner are found, and no record or server stops maintenance for ever.

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection, cmd};
use semel_core::{
    AbandonRequest, Claim, ClaimRequest, Decision, ErrorKind, Fingerprint, KeyHash, ListQuery,
    Nonce, OnLostOwner, Outcome, Resolution, ResolveRequest, Store,
};
use semel_servers::{REDIS, Running};
use semel_store_redis::RedisStore;
use tokio::time::timeout;

use crate::common::{LONG, completion, granted, request, until};

const SHORT: Duration = Duration::from_millis(20);

/// A server that no other test uses, a store on it, and a plain connection to it.
struct PurgeFixture {
    server: Running,
    store: RedisStore,
    raw: MultiplexedConnection,
}

impl PurgeFixture {
    async fn start() -> Self {
        let server = Running::start(&REDIS).unwrap();
        let builder = RedisStore::builder(server.url());
        let store = builder.call_timeout(Duration::from_secs(1)).connect().await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        Self { server, store, raw }
    }

    async fn query<T: FromRedisValue>(&self, command: &[&[u8]]) -> T {
        let mut redis_command = cmd(std::str::from_utf8(command[0]).unwrap());
        redis_command.arg(&command[1..]);
        redis_command.query_async(&mut self.raw.clone()).await.unwrap()
    }

    async fn entries(&self, index: &str) -> Vec<(Vec<u8>, u64)> {
        self.query(&[b"ZRANGE", index.as_bytes(), b"0", b"-1", b"WITHSCORES"]).await
    }

    /// Makes all entries of an index a minute older.
    async fn age(&self, index: &str) {
        let entries = self.entries(index).await;
        let mut command = vec![b"ZADD".to_vec(), index.as_bytes().to_vec()];
        for (key, score) in entries {
            command.extend([(score - 60_000).to_string().into_bytes(), key]);
        }
        let _: u64 = self.query(&command.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    }

    async fn wait_for_lease_end(&self, claim: &ClaimRequest) {
        until("its lease has ended", async || {
            let sighting = self.store.get(&claim.key).await.unwrap().unwrap();
            !sighting.record.is_leased(sighting.at)
        })
        .await;
    }

    /// Lets the lease end, and the grace period that the first purge after that begins.
    async fn wait_until_owner_is_lost(&self, claim: &ClaimRequest) {
        self.wait_for_lease_end(claim).await;
        assert_eq!(self.store.purge(10).await.unwrap().held, 0, "the owner may be heard yet");
        self.wait_for_lease_end(claim).await;
    }

    async fn make_unknown(&self, claim: &ClaimRequest) {
        let owner = granted(&self.store, claim).await.owner;
        let backoff = Duration::ZERO;
        self.store.abandon(&AbandonRequest { owner, backoff }).await.unwrap();
    }
}

fn claim_in_hold_mode(lease: Duration) -> ClaimRequest {
    let mut claim = request(lease);
    claim.terms.on_lost_owner = OnLostOwner::Hold;
    claim
}

fn name(key: &KeyHash) -> Vec<u8> {
    [b"semel:k:", &key.as_bytes()[..]].concat()
}

/// A purge finds claims in hold mode by their index, and checks many entries in one trip: a trip for each would take
/// seconds.
#[tokio::test]
async fn a_purge_finds_a_lost_owner_among_many_completed_claims_in_a_few_trips() {
    let fixture = PurgeFixture::start().await;
    for _ in 0..600 {
        let lease = granted(&fixture.store, &claim_in_hold_mode(SHORT)).await;
        fixture.store.complete(&completion(lease.owner, "done")).await.unwrap();
    }
    let lost = claim_in_hold_mode(SHORT);
    granted(&fixture.store, &lost).await;
    let reads = || {
        let stats = fixture.server.ask(&["INFO", "stats"]).unwrap();
        let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        reads.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = reads();
    fixture.wait_until_owner_is_lost(&lost).await;
    assert_eq!(fixture.store.purge(10).await.unwrap().held, 1);
    let trips = reads() - before;
    assert!(trips < 100, "{trips} trips for 600 claims that have ended");
    assert_eq!(fixture.store.stats().await.unwrap().unknown, 1);
}

/// A completed claim leaves the index of claims in hold mode after its grace time.
#[tokio::test]
async fn a_completed_claim_leaves_the_index() {
    let fixture = PurgeFixture::start().await;
    let lease = granted(&fixture.store, &claim_in_hold_mode(SHORT)).await;
    fixture.store.complete(&completion(lease.owner, "done")).await.unwrap();
    let first = fixture.entries("semel:held").await[0].1;
    until("the entry was checked", async || {
        fixture.store.purge(10).await.unwrap();
        fixture.entries("semel:held").await[0].1 > first
    })
    .await;
    fixture.age("semel:held").await;
    until("the entry is gone", async || {
        fixture.store.purge(10).await.unwrap();
        fixture.entries("semel:held").await.is_empty()
    })
    .await;
}

/// An entry that was added again between two checks is not removed.
#[tokio::test]
async fn a_key_that_is_claimed_again_stays_in_the_index() {
    let fixture = PurgeFixture::start().await;
    let claim = claim_in_hold_mode(SHORT);
    let lease = granted(&fixture.store, &claim).await;
    let none = semel_core::Effect::None;
    let release = semel_core::ReleaseRequest { owner: lease.owner, effect: none };
    fixture.store.release(&release).await.unwrap();
    let first = fixture.entries("semel:held").await[0].1;
    until("the entry was checked", async || {
        fixture.store.purge(10).await.unwrap();
        fixture.entries("semel:held").await[0].1 > first
    })
    .await;
    granted(&fixture.store, &ClaimRequest { nonce: Nonce::random(), ..claim.clone() }).await;
    fixture.wait_for_lease_end(&claim).await;
    until("the lost owner is found", async || fixture.store.purge(10).await.unwrap().held == 1)
        .await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_stop_a_purge() {
    let fixture = PurgeFixture::start().await;
    let (bad, good) = (claim_in_hold_mode(SHORT), claim_in_hold_mode(SHORT));
    granted(&fixture.store, &bad).await;
    granted(&fixture.store, &good).await;
    let _: u64 = fixture.query(&[b"SETRANGE", &name(&bad.key), b"1", b"\x09"]).await;
    fixture.wait_for_lease_end(&good).await;
    until("the lost owner is found", async || fixture.store.purge(10).await.unwrap().held == 1)
        .await;
}

/// Even a thousand of them.
#[tokio::test]
async fn keys_that_are_no_longer_unknown_leave_the_index_at_once() {
    let fixture = PurgeFixture::start().await;
    let stuck = claim_in_hold_mode(LONG);
    fixture.make_unknown(&stuck).await;
    fixture.age("semel:stuck").await;
    let mut add = vec![b"ZADD".to_vec(), b"semel:stuck".to_vec()];
    for _ in 0..1000 {
        add.extend([b"2".to_vec(), rand::random::<[u8; 32]>().to_vec()]);
    }
    let _: u64 = fixture.query(&add.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    fixture.store.purge(2000).await.unwrap();
    let left = fixture.entries("semel:stuck").await;
    let left: Vec<_> = left.into_iter().map(|(key, _)| key).collect();
    assert!(left == [stuck.key.as_bytes()], "{} are left", left.len());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others_from_a_list() {
    let fixture = PurgeFixture::start().await;
    for (at, written) in [(0, b"\x20"), (1, b"\x09")] {
        let (bad, good) = (request(LONG), request(LONG));
        granted(&fixture.store, &bad).await;
        granted(&fixture.store, &good).await;
        let at = u8::to_string(&at).into_bytes();
        let _: u64 = fixture.query(&[b"SETRANGE", &name(&bad.key), &at, written]).await;
        let query = ListQuery { limit: 10, ..ListQuery::default() };
        let listed = fixture.store.list(&query).await.unwrap();
        assert_eq!(listed.into_iter().map(|record| record.key).collect::<Vec<_>>(), [good.key]);
        let _: String = fixture.query(&[b"FLUSHDB"]).await;
    }
}

/// A full server refuses new keys, but a key that becomes Unknown is in the index for operators.
#[tokio::test]
async fn unknown_keys_of_a_full_server_are_counted() {
    let fixture = PurgeFixture::start().await;
    let (lost, given_up) = (claim_in_hold_mode(SHORT), claim_in_hold_mode(LONG));
    granted(&fixture.store, &lost).await;
    let owner = granted(&fixture.store, &given_up).await.owner;
    fixture.wait_for_lease_end(&lost).await;
    fixture.server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let again = ClaimRequest { nonce: Nonce::random(), ..lost.clone() };
    let contested = fixture.store.claim(&again).await.unwrap();
    assert!(matches!(contested, Claim::Busy { .. }), "{contested:?}");
    fixture.wait_for_lease_end(&lost).await;
    assert_eq!(fixture.store.claim(&again).await.unwrap(), Claim::Unknown);
    let backoff = Duration::ZERO;
    fixture.store.abandon(&AbandonRequest { owner, backoff }).await.unwrap();
    assert_eq!(fixture.store.stats().await.unwrap().unknown, 2);
}

/// A purge changes the scores of index entries while they are read.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_are_counted_while_a_purge_runs() {
    let fixture = Arc::new(PurgeFixture::start().await);
    for _ in 0..300 {
        fixture.make_unknown(&claim_in_hold_mode(LONG)).await;
    }
    let purging = tokio::spawn({
        let fixture = fixture.clone();
        async move {
            loop {
                fixture.age("semel:stuck").await;
                fixture.store.purge(10).await.unwrap();
            }
        }
    });
    for _ in 0..40 {
        assert_eq!(fixture.store.stats().await.unwrap().unknown, 300);
    }
    purging.abort();
}

#[tokio::test]
async fn maintenance_fails_while_the_server_does_not_answer_and_works_again_later() {
    let fixture = PurgeFixture::start().await;
    fixture.server.pause().unwrap();
    let answer = timeout(Duration::from_secs(20), fixture.store.stats()).await;
    assert_eq!(answer.expect("the call ends").unwrap_err().kind(), ErrorKind::Unavailable);
    fixture.server.resume().unwrap();
    until("maintenance works again", async || fixture.store.stats().await.is_ok()).await;
}

#[tokio::test]
async fn maintenance_works_again_after_a_restart_of_the_server() {
    let mut fixture = PurgeFixture::start().await;
    fixture.server.kill().unwrap();
    fixture.server.restart().unwrap();
    until("maintenance works again", async || fixture.store.stats().await.is_ok()).await;
}

/// Two operators decide differently at the same time: one decision is recorded, the other is refused.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_concurrent_decisions_one_is_done() {
    let fixture = PurgeFixture::start().await;
    let other = RedisStore::connect(fixture.server.url()).await.unwrap();
    for _ in 0..300 {
        let claim = claim_in_hold_mode(LONG);
        fixture.make_unknown(&claim).await;
        let record = fixture.store.get(&claim.key).await.unwrap().unwrap().record;
        let decide = async |store: &RedisStore, value: &str| {
            let outcome = Arc::new(Outcome::success(value.to_owned()));
            let request = ResolveRequest {
                key: claim.key,
                seen_nonce: record.nonce,
                seen_token: record.token,
                decision: Decision::Complete(outcome.clone()),
            };
            (store.resolve(&request).await.unwrap(), outcome)
        };
        let (one, two) = tokio::join!(decide(&fixture.store, "one"), decide(&other, "two"));
        let done: Vec<_> = [one, two].into_iter().filter(|it| it.0 == Resolution::Done).collect();
        assert_eq!(done.len(), 1, "one decision stands");
        let record = fixture.store.get(&claim.key).await.unwrap().unwrap().record;
        assert_eq!(record.outcome.as_ref(), Some(&done[0].1));
    }
}

#[tokio::test]
async fn a_claim_that_lost_its_ttl_is_not_taken_over() {
    let fixture = PurgeFixture::start().await;
    let claim = request(LONG);
    granted(&fixture.store, &claim).await;
    let _: u64 = fixture.query(&[b"PERSIST", &name(&claim.key)]).await;
    let other = ClaimRequest { nonce: Nonce::random(), ..claim };
    let error = fixture.store.claim(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// The index entry of a claim that is refused does not delay the check of the lost owner.
#[tokio::test]
async fn a_refused_claim_does_not_delay_the_purge_of_a_lost_owner() {
    let fixture = PurgeFixture::start().await;
    let mut claim = request(SHORT);
    claim.terms.on_lost_owner = OnLostOwner::Hold;
    granted(&fixture.store, &claim).await;
    fixture.wait_until_owner_is_lost(&claim).await;
    let mut other = ClaimRequest { nonce: Nonce::random(), ..claim.clone() };
    other.fingerprint = Fingerprint::of_bytes(b"something else");
    other.terms.lease = LONG.into();
    assert_eq!(fixture.store.claim(&other).await.unwrap(), Claim::Mismatch);
    assert_eq!(fixture.store.purge(10).await.unwrap().held, 1);
}
