//! Dropped calls, lost connections, and servers that stop.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use semel_core::{Claim, ErrorKind, Store};
use semel_faults::{Fault, FaultProxy};
use semel_servers::{POSTGRES, Running};
use semel_store_postgres::PostgresStore;
use tokio::net::{TcpSocket, TcpStream};

use crate::common::{Schema, claim_of, granted, key, until, url};

fn proxy() -> (FaultProxy, String) {
    let url = url();
    let (head, rest) = url.rsplit_once(':').unwrap();
    let (port, database) = rest.split_once('/').unwrap();
    let proxy = FaultProxy::start(port.parse().unwrap()).unwrap();
    let url = format!("{head}:{}/{database}", proxy.port());
    (proxy, url)
}

/// One connection; a caller drops its call while its claim is on the way.
#[tokio::test]
async fn a_dropped_call_does_not_take_the_reply_of_another() {
    let schema = Schema::new();
    schema.store().await;
    let (proxy, url) = proxy();
    let url = format!("{url}?application_name={}", schema.name);
    let store =
        PostgresStore::builder(url).schema(&schema.name).connections(1).connect().await.unwrap();
    for _ in 0..20 {
        let (left, next) = (claim_of(key()), claim_of(key()));
        proxy.set(Fault::Hold);
        tokio::time::timeout(Duration::from_millis(5), store.claim(&left)).await.unwrap_err();
        proxy.set(Fault::None);
        assert_eq!(granted(&store, &next).await.owner.key, next.key);
        assert!(
            matches!(store.claim(&claim_of(left.key)).await.unwrap(), Claim::Busy { .. }),
            "a claim that was sent is done"
        );
    }
    let open = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = '{s}' AND state LIKE 'idle in%'";
    assert_eq!(schema.number(&open.replace("{s}", &schema.name)).await, 0);
}

#[tokio::test]
async fn calls_to_a_server_that_does_not_answer_fail_within_the_call_timeout() {
    let schema = Schema::new();
    schema.store().await;
    let (proxy, url) = proxy();
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(1);
    let store = builder.call_timeout(Duration::from_millis(300)).connect().await.unwrap();
    proxy.set(Fault::BlackHole);
    let request = claim_of(key());
    assert_eq!(store.claim(&request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.set(Fault::None);
    // The same claim again, whether or not the first one arrived.
    until("it is granted", || async {
        matches!(store.claim(&request).await, Ok(Claim::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn the_same_claim_after_a_lost_reply_is_granted() {
    let schema = Schema::new();
    schema.store().await;
    let (proxy, url) = proxy();
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(1);
    let store = builder.call_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let request = claim_of(key());
    proxy.set(Fault::OneWay);
    assert_eq!(store.claim(&request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.set(Fault::None);
    until("it is granted", || async {
        matches!(store.claim(&request).await, Ok(Claim::Granted(_)))
    })
    .await;
    assert_eq!(schema.number("SELECT max(attempts)::bigint FROM {t}").await, 1);
}

#[tokio::test]
async fn calls_fail_fast_while_the_server_restarts_and_work_when_it_is_back() {
    let mut server = Running::start(&POSTGRES).unwrap();
    let schema = Schema::at(server.url().to_owned());
    let store = schema.store().await;
    let request = claim_of(key());
    let lease = granted(&store, &request).await;
    server.kill().unwrap();
    until("calls fail without being sent", || async {
        let error = store.claim(&claim_of(key())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        error.to_string().contains("not connected")
    })
    .await;
    server.restart().unwrap();
    until("it works again", || async { store.claim(&claim_of(key())).await.is_ok() }).await;
    let read = store.get(&request.key).await.unwrap().expect("an acknowledged claim is gone");
    assert_eq!(read.record.nonce, Some(lease.owner.nonce));
    until("maintenance works again", || async { store.stats().await.is_ok() }).await;
}

/// The server reports success, with a notice that the replica may not have the commit.
#[tokio::test]
async fn a_commit_that_did_not_wait_for_its_replica_may_have_happened() {
    let server = Running::start(&POSTGRES).unwrap();
    let schema = Schema::at(server.url().to_owned());
    let store = schema.store().await;
    schema.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    schema.sql("SELECT pg_reload_conf()").await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    // The server takes the setting over in its own time.
    let claim = loop {
        let store = store.clone();
        let claim = tokio::spawn(async move { store.claim(&claim_of(key())).await });
        until("it ends or waits", || async {
            claim.is_finished() || schema.number(waiting).await > 0
        })
        .await;
        if !claim.is_finished() {
            break claim;
        }
    };
    let end = "WITH waiting AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep')
        SELECT count(*) FROM waiting WHERE pg_cancel_backend(pid)";
    until("the wait is cancelled", || async { schema.number(end).await > 0 }).await;
    let error = claim.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    schema.sql("ALTER SYSTEM RESET synchronous_standby_names").await;
    schema.sql("SELECT pg_reload_conf()").await;
}

/// There are no calls, so only the connection of the change feed can notice.
#[tokio::test]
async fn a_dead_connection_of_the_change_feed_is_noticed() {
    let schema = Schema::new();
    schema.store().await;
    let (proxy, url) = proxy();
    let url = format!("{url}?application_name={}", schema.name);
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(1);
    let store = builder.call_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let listening = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE application_name = '{}' AND state = 'idle' AND query LIKE 'LISTEN%'",
        schema.name
    );
    until("it listens", || async { schema.number(&listening).await == 1 }).await;
    let connections = proxy.counts().accepted;
    proxy.set(Fault::BlackHole);
    until("it connects again", || async { proxy.counts().accepted > connections }).await;
    let mut listener = store.info().change_feed.unwrap().subscribe(&key());
    proxy.set(Fault::None);
    let notified = tokio::time::timeout(Duration::from_secs(60), listener.changed()).await;
    notified.expect("after a gap, every key counts as changed");
}

/// A machine that is off does not refuse connections. A listener with a full backlog acts the same.
#[tokio::test]
async fn a_host_that_is_off_leaves_time_for_the_next() {
    let schema = Schema::new();
    schema.store().await;
    let off = TcpSocket::new_v4().unwrap();
    off.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let off = off.listen(1).unwrap();
    let address = off.local_addr().unwrap();
    let mut queued = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(Ok(one)) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
        queued.push(one);
    }
    let url = schema.url.replace("@", &format!("@{address},"));
    let store = PostgresStore::builder(url).schema(&schema.name).connections(1).connect().await;
    granted(&store.unwrap(), &claim_of(key())).await;
}
