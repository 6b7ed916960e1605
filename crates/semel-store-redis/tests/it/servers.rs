//! Behaviour of servers: unfit settings, crashes, full memory, failovers and wrong replies.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use semel_core::{
    Claim, ClaimRequest, Completion, Error, ErrorKind, Finding, HashSecret, ListQuery, Nonce,
    Renewal, Store,
};
use semel_servers::{REDIS, RedisSentinel, Running};
use semel_store_redis::{RedisStore, RedisStoreBuilder};
use tokio::time::timeout;

use crate::common::{
    LONG, completion, granted, own, prefix, refusal, request, shared, until, works,
};

#[tokio::test]
async fn an_evicting_server_is_refused_at_every_connect() {
    let server = Running::start(&REDIS.args(["--maxmemory-policy", "allkeys-lru"])).unwrap();
    assert!(refusal(server.url()).await.contains("maxmemory-policy noeviction"));

    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let store = RedisStore::connect(server.url()).await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).unwrap();
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    until("the store refuses the server", async || {
        let answer = store.claim(&request(LONG)).await;
        answer.is_err_and(|error| error.to_string().contains("noeviction"))
    })
    .await;
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    until("the store works again", async || works(&store).await).await;
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (own(), own());
    let port = primary.port().to_string();
    replica.ask(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    assert!(refusal(replica.url()).await.contains("replica"));
}

#[tokio::test]
async fn a_demoted_primary_is_noticed() {
    let (primary, demoted) = (own(), own());
    let store = RedisStore::connect(demoted.url()).await.unwrap();
    let port = primary.port().to_string();
    demoted.ask(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let error = store.claim(&request(LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    demoted.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    until("it is a primary again", async || works(&store).await).await;
}

/// Maintenance drops its connection to a demoted primary too, and connects again.
#[tokio::test]
async fn maintenance_notices_a_demoted_primary() {
    let server = own();
    let connect = async || RedisStore::connect(server.url()).await.unwrap();
    let (leading, purging) = (connect().await, connect().await);
    // A replica of a primary that does not exist keeps its data, and its clients get no message about the change.
    server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).unwrap();
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let is_left = |error: Error| error.to_string().contains("is a replica");
    until("the election leaves it", async || leading.lead(LONG).await.is_err_and(is_left)).await;
    until("the purge leaves it", async || purging.purge(10).await.is_err_and(is_left)).await;
    server.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    until("the election works again", async || leading.lead(LONG).await.is_ok()).await;
    until("the purge works again", async || purging.purge(10).await.is_ok()).await;
}

/// A plain connection.
async fn raw(server: &Running) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The server loses all scripts again and again, and no request fails.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_has_flushed_are_sent_again() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let load: Vec<_> = (0..32)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let claim = request(LONG);
                    let lease = granted(&store, &claim).await;
                    let renew = semel_core::RenewRequest::new(lease.owner, LONG);
                    assert_eq!(store.renew(&renew).await.unwrap(), Renewal::Extended);
                    let completed = store.complete(&completion(lease.owner, "done")).await;
                    assert_eq!(completed.unwrap(), Completion::Recorded);
                }
            })
        })
        .collect();
    while load.iter().any(|task| !task.is_finished()) {
        server.ask(&["SCRIPT", "FLUSH"]).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for task in load {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_completion_of_a_lost_record_creates_none() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let claim = request(LONG);
    let lease = granted(&store, &claim).await;
    server.ask(&["FLUSHALL"]).unwrap();
    let answer = store.complete(&completion(lease.owner, "done")).await.unwrap();
    assert_eq!(answer, Completion::Missing);
    assert_eq!(store.get(&claim.key).await.unwrap(), None);
}

/// A full server refuses new keys, but replays and completes those that it has.
#[tokio::test]
async fn a_full_server_still_replays_and_records() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let (done, running) = (request(LONG), request(LONG));
    let lease = granted(&store, &done).await;
    store.complete(&completion(lease.owner, "done")).await.unwrap();
    let lease = granted(&store, &running).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();

    let refused = store.claim(&request(LONG)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    let again = ClaimRequest { nonce: Nonce::random(), ..done };
    assert!(matches!(store.claim(&again).await.unwrap(), Claim::Replay(_)));
    let busy = ClaimRequest { nonce: Nonce::random(), ..running };
    assert!(matches!(store.claim(&busy).await.unwrap(), Claim::Busy { .. }));
    let answer = store.complete(&completion(lease.owner, "done")).await.unwrap();
    assert_eq!(answer, Completion::Recorded);
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    until("it is connected to again", async || {
        store.claim(&again).await.is_ok_and(|claim| matches!(claim, Claim::Replay(_)))
    })
    .await;
}

/// Calls fail before their timeout while the server is down, and acknowledged outcomes are there after its restart.
#[tokio::test]
async fn a_killed_server_comes_back_with_what_it_acknowledged() {
    let mut server = Running::start(&REDIS.durable()).unwrap();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let claim = request(LONG);
    let lease = granted(&store, &claim).await;
    store.complete(&completion(lease.owner, "done")).await.unwrap();
    server.kill().unwrap();
    for _ in 0..3 {
        let called_at = Instant::now();
        let error = store.claim(&request(LONG)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(called_at.elapsed() < RedisStoreBuilder::CALL_TIMEOUT, "{:?}", called_at.elapsed());
    }
    server.restart().unwrap();
    let again = ClaimRequest { nonce: Nonce::random(), ..claim };
    let mut claim = None;
    until("the store works again", async || {
        claim = store.claim(&again).await.ok();
        claim.is_some()
    })
    .await;
    assert!(matches!(claim, Some(Claim::Replay(_))), "{claim:?}");
}

/// The reply to a dropped call is not given to the next one.
#[tokio::test]
async fn a_dropped_caller_does_not_affect_the_next() {
    let server = own();
    let store = RedisStore::builder(server.url()).connections(1).connect().await.unwrap();
    let (first, second) = (request(LONG), request(LONG));
    server.pause().unwrap();
    assert!(timeout(Duration::from_millis(50), store.claim(&first)).await.is_err());
    let next = tokio::spawn({
        let (store, second) = (store.clone(), second.clone());
        async move { granted(&store, &second).await }
    });
    server.resume().unwrap();
    assert_eq!(next.await.unwrap().owner.key, second.key);
    let record = store.get(&first.key).await.unwrap().unwrap().record;
    assert_eq!((record.key, record.nonce), (first.key, Some(first.nonce)), "the call happened");
}

/// The connection to a server that does not answer is dropped, and opened again.
#[tokio::test]
async fn a_call_to_a_server_that_does_not_answer_fails_after_the_call_timeout() {
    let server = own();
    let short = Duration::from_millis(200);
    let store = RedisStore::builder(server.url()).call_timeout(short).connect().await.unwrap();
    server.pause().unwrap();
    // While the server is paused, only its own timeout, shorter than the default, ends the call.
    let error = timeout(RedisStoreBuilder::CALL_TIMEOUT, store.claim(&request(LONG)))
        .await
        .expect("the call ends");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    server.resume().unwrap();
    until("the store works again", async || works(&store).await).await;
}

/// Either the owner renews its ended lease, or another owner takes the key over, but not both.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_and_a_takeover_never_both_succeed() {
    let (url, prefix) = (shared(), prefix("takeover"));
    let connect = async || RedisStore::builder(&url).prefix(&prefix).connect().await.unwrap();
    let (mine, theirs) = (connect().await, connect().await);
    let races = (0..200).map(|_| {
        let (mine, theirs) = (mine.clone(), theirs.clone());
        tokio::spawn(async move {
            let claim = request(Duration::from_millis(500));
            let owner = granted(&mine, &claim).await.owner;
            tokio::time::sleep(Duration::from_millis(510)).await;
            let renew = semel_core::RenewRequest::new(owner, LONG);
            let other = ClaimRequest { nonce: Nonce::random(), ..claim };
            let (renewed, claimed) = tokio::join!(mine.renew(&renew), theirs.claim(&other));
            match (renewed.unwrap(), claimed.unwrap()) {
                (Renewal::Extended, Claim::Busy { .. }) => {}
                (Renewal::Lost, Claim::Granted(lease)) => assert!(lease.takeover),
                both => panic!("{both:?}"),
            }
        })
    });
    for race in races.collect::<Vec<_>>() {
        race.await.unwrap();
    }
}

#[tokio::test]
async fn one_store_leads_at_a_time() {
    let (url, prefix) = (shared(), prefix("lead"));
    let connect = async || RedisStore::builder(&url).prefix(&prefix).connect().await.unwrap();
    let (one, other) = (connect().await, connect().await);
    assert!(one.lead(Duration::from_millis(300)).await.unwrap());
    assert!(!other.lead(LONG).await.unwrap());
    assert!(one.lead(Duration::from_millis(300)).await.unwrap(), "the leader stays");
    until("the term is over", async || other.lead(LONG).await.unwrap()).await;
    assert!(!one.lead(LONG).await.unwrap());
}

/// Waiters are notified of a completion; steps of operators are published even without waiters.
#[tokio::test]
async fn subscribers_in_other_processes_are_notified_of_changes() {
    let (url, prefix) = (shared(), prefix("feed"));
    let connect = async || RedisStore::builder(&url).prefix(&prefix).connect().await.unwrap();
    let (owner, waiting) = (connect().await, connect().await);
    let claim = request(LONG);
    let lease = granted(&owner, &claim).await;
    let mut subscriber = waiting.info().change_feed.unwrap().subscribe(&claim.key);
    let contender = ClaimRequest { nonce: Nonce::random(), ..claim.clone() };
    assert!(matches!(waiting.claim(&contender).await.unwrap(), Claim::Busy { .. }));
    owner.complete(&completion(lease.owner, "done")).await.unwrap();
    timeout(LONG, subscriber.changed()).await.expect("a completion is published");
    owner.erase(&claim.key).await.unwrap();
    timeout(LONG, subscriber.changed()).await.expect("an erasure is published");
}

/// A takeover keeps the mark that a caller waits for this key.
#[tokio::test]
async fn a_waiter_for_a_lost_owner_is_notified_when_the_next_owner_completes() {
    let (url, prefix) = (shared(), prefix("feed-takeover"));
    let connect = async || RedisStore::builder(&url).prefix(&prefix).connect().await.unwrap();
    let (owner, waiting) = (connect().await, connect().await);
    let claim = request(Duration::from_millis(500));
    granted(&owner, &claim).await;
    let again = || ClaimRequest { nonce: Nonce::random(), ..claim.clone() };
    assert!(matches!(waiting.claim(&again()).await.unwrap(), Claim::Busy { .. }));
    let mut next = None;
    until("the lease is over", async || {
        match owner.claim(&again()).await.unwrap() {
            Claim::Granted(lease) => next = Some(lease),
            claim => assert!(matches!(claim, Claim::Busy { .. }), "{claim:?}"),
        }
        next.is_some()
    })
    .await;
    let mut subscriber = waiting.info().change_feed.unwrap().subscribe(&claim.key);
    owner.complete(&completion(next.unwrap().owner, "done")).await.unwrap();
    timeout(LONG, subscriber.changed()).await.expect("the completion is published");
}

/// Messages may have been missed while there was no subscription.
#[tokio::test]
async fn a_new_subscription_notifies_all_subscribers() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let mut subscriber = store.info().change_feed.unwrap().subscribe(&request(LONG).key);
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    timeout(LONG, subscriber.changed()).await.expect("all subscribers are notified");
}

/// The record of another key is never a reply, and the connection is opened again.
#[tokio::test]
async fn a_reply_with_the_record_of_another_key_is_refused() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let (one, other) = (request(LONG), request(LONG));
    granted(&store, &one).await;
    copy(&server, &one, &other).await;
    assert_eq!(store.claim(&other).await.unwrap_err().kind(), ErrorKind::Corrupt);
    until("a new connection", async || store.get(&one.key).await.is_ok()).await;
}

fn name(claim: &ClaimRequest) -> Vec<u8> {
    [b"semel:k:", &claim.key.as_bytes()[..]].concat()
}

/// Copies the record of one claim to the key of the other.
async fn copy(server: &Running, one: &ClaimRequest, other: &ClaimRequest) {
    let mut copy = redis::cmd("COPY");
    copy.arg(name(one)).arg(name(other)).exec_async(&mut raw(server).await).await.unwrap();
}

/// The other requests of the trip fail with a retryable error, and succeed when they are sent again.
#[tokio::test]
async fn requests_in_the_trip_of_a_wrong_reply_may_be_tried_again() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let (new, busy, strange) = (request(LONG), request(LONG), request(LONG));
    granted(&store, &busy).await;
    copy(&server, &busy, &strange).await;
    let busy = ClaimRequest { nonce: Nonce::random(), ..busy };
    let claims = [new, busy, strange];
    let kinds = store.claim_many(&claims).await;
    let kinds = kinds.into_iter().map(|claim| claim.unwrap_err().kind()).collect::<Vec<_>>();
    let unavailable = ErrorKind::Unavailable;
    assert_eq!(kinds, [unavailable, unavailable, ErrorKind::Corrupt]);
    let mut answers = None;
    until("a new connection", async || {
        answers = Some((store.claim(&claims[0]).await, store.claim(&claims[1]).await));
        matches!(&answers, Some((Ok(_), Ok(_))))
    })
    .await;
    assert!(matches!(answers, Some((Ok(Claim::Granted(_)), Ok(Claim::Busy { .. })))));
}

#[tokio::test]
async fn a_failover_is_followed() {
    let mut sentinel = RedisSentinel::start().unwrap();
    let (port, service) = (sentinel.sentinel.port(), RedisSentinel::SERVICE);
    let url = format!("redis+sentinel://127.0.0.1:{port}/{service}");
    let store = RedisStore::connect(&url).await.unwrap();
    granted(&store, &request(LONG)).await;
    sentinel.fail_over().unwrap();
    until("the new primary is found", async || works(&store).await).await;
}

/// Sentinels are tried in random order, so one that accepts connections and does not answer is not always the first.
#[tokio::test]
async fn a_silent_sentinel_does_not_hide_the_others() {
    let sentinel = RedisSentinel::start().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, port) = (silent.local_addr().unwrap(), sentinel.sentinel.port());
    let others = format!("127.0.0.1:{port},127.0.0.1:{port},127.0.0.1:{port}");
    let url = format!("redis+sentinel://{silent},{others}/{}", RedisSentinel::SERVICE);
    let connect = || {
        let builder = RedisStore::builder(&url).connections(1);
        builder.call_timeout(Duration::from_millis(400)).connect()
    };
    for _ in 0..30 {
        if connect().await.is_ok() {
            return;
        }
    }
    panic!("the silent sentinel is always tried first");
}

#[tokio::test]
async fn settings_that_may_lose_records_are_reported_as_warnings() {
    let server = Running::start(&REDIS.durable()).unwrap();
    let found = async || {
        let findings = RedisStore::builder(server.url()).checks().await.unwrap();
        findings.iter().map(|it| format!("{:?} {} {:?}\n", it.level, it.what, it.fix)).collect()
    };
    let report: String = found().await;
    assert!(report.contains("Good appendonly yes, appendfsync always"), "{report}");
    assert!(report.contains("Good maxmemory-policy noeviction"), "{report}");
    server.ask(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]).unwrap();
    let report: String = found().await;
    assert!(report.contains("Warning appendonly yes, appendfsync always, but not"), "{report}");

    let used: u64 = {
        let info = server.ask(&["INFO", "memory"]).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", &(used + (1 << 20)).to_string()]).unwrap();
    let filler = "x".repeat(1 << 16);
    for number in 0..64 {
        server.ask(&["SET", &format!("filler-{number}"), &filler]).unwrap();
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let report: String = found().await;
    assert!(report.contains("keys were evicted since the server started"), "{report}");

    let port = server.port().to_string();
    let _replica = Running::start(&REDIS.args(["--replicaof", "127.0.0.1", &port])).unwrap();
    until("the replica is seen", async || {
        let report: String = found().await;
        report.contains("Warning 1 replicas: a failover forgets claims and outcomes")
    })
    .await;
}

#[tokio::test]
async fn checks_name_the_fix_and_write_nothing() {
    let (url, prefix) = (shared(), prefix("examined"));
    let builder = || RedisStore::builder(&url).prefix(&prefix);
    let found = async |builder: RedisStoreBuilder| {
        let findings = builder.checks().await.unwrap();
        let text = |it: &Finding| format!("{:?} {} {:?}", it.level, it.what, it.fix);
        findings.iter().map(text).collect::<Vec<_>>().join("\n")
    };
    let report = found(builder()).await;
    assert!(report.contains("appendonly no") && report.contains("appendonly yes"), "{report}");
    assert!(report.contains("no process has settled the hash secret yet"), "{report}");
    let secret = HashSecret::random();
    builder().hash_secret(secret.clone()).connect().await.expect("nothing was settled");
    assert!(found(builder().hash_secret(secret)).await.contains("the fleet agreed on"));
    let report = found(builder()).await;
    assert!(report.contains("Bad") && report.contains("--hash-secret-file"), "{report}");
    let report = found(RedisStore::builder("redis://:canary@127.0.0.1:1")).await;
    assert!(report.contains("Bad") && !report.contains("canary"), "{report}");
}

#[tokio::test]
async fn the_pages_of_a_list_share_one_scan_of_all_keys() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let mut keys = BTreeSet::new();
    for _ in 0..10 {
        let claim = request(LONG);
        granted(&store, &claim).await;
        keys.insert(claim.key);
    }
    let (mut listed, mut query) = (Vec::new(), ListQuery { limit: 3, ..ListQuery::default() });
    loop {
        let page = store.list(&query).await.unwrap();
        listed.extend(page.iter().map(|record| record.key));
        if page.len() < query.limit {
            break;
        }
        query.after = listed.last().copied();
    }
    assert_eq!(listed, Vec::from_iter(keys), "all keys, sorted");
    assert_eq!(scans(&server).await, 1);
    query.after = listed.first().copied();
    assert_eq!(store.list(&query).await.unwrap()[0].key, listed[1]);
    assert_eq!(scans(&server).await, 2, "another list needs another scan");
}

/// The number of `SCAN` commands so far.
async fn scans(server: &Running) -> u64 {
    let client = redis::Client::open(server.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw).await.unwrap();
    let scan = stats.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
    scan.map_or(0, |counts| counts.split(',').next().unwrap().parse().unwrap())
}
