//! Several processes on one table.

use std::{sync::Arc, time::Duration};

use semel_core::{
    Claim, CompleteRequest, Erasure, ErrorKind, FailbackWindow, HashSecret, Outcome, Store,
};
use semel_store_postgres::PostgresStore;

use crate::common::{Schema, claim_of, granted, key, until};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_completion_wakes_a_waiter_on_another_node() {
    let schema = Schema::new();
    let (owner, other) = (schema.store().await, schema.store().await);
    let feed = other.info().change_feed.unwrap();
    let key = key();
    // The other node gets notifications only once it listens on the server.
    until("a node listens", || async {
        schema.number("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").await > 0
    })
    .await;
    let lease = granted(&owner, &claim_of(key)).await;
    let mut listener = feed.subscribe(&key);
    assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Busy { .. }));
    let outcome = Arc::new(Outcome::success("done"));
    owner.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    tokio::time::timeout(PATIENCE, listener.changed()).await.expect("the node was not notified");
    assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Replay(_)));
}

#[tokio::test]
async fn an_operators_decision_is_notified_to_the_caches_of_all_nodes() {
    let schema = Schema::new();
    let (one, other) = (schema.store().await, schema.store().await);
    let feed = other.info().change_feed.unwrap();
    for _ in 0..3 {
        let key = key();
        let lease = granted(&one, &claim_of(key)).await;
        let outcome = Arc::new(Outcome::success("done"));
        one.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        let mut listener = feed.subscribe(&key);
        one.erase(&key).await.unwrap();
        tokio::time::timeout(PATIENCE, listener.changed())
            .await
            .expect("the node was not notified");
    }
}

/// Also when many start on an empty table at once.
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_read_one_identity_of_the_table() {
    let schema = Schema::new();
    schema.builder().apply_migrations().await.unwrap();
    let without_setup = schema.builder().skip_setup(true).connect().await.unwrap();
    assert_eq!(without_setup.info().identity, None, "a store with skip_setup sets no identity");
    let nodes = futures_util::future::join_all((0..8).map(|_| schema.store())).await;
    let mut identities: Vec<_> = nodes.iter().map(|node| node.info().identity.unwrap()).collect();
    identities.dedup();
    assert_eq!(identities.len(), 1);
    let other = schema.builder().table("other").connect().await.unwrap();
    assert_ne!(other.info().identity, Some(identities[0]));
}

#[tokio::test]
async fn an_operator_does_not_wait_for_maintenance() {
    let schema = Schema::new();
    let builder = schema.builder().lock_timeout(2 * PATIENCE);
    let store = builder.call_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let lease = granted(&store, &claim_of(key())).await;
    let other = schema.client().await;
    let lock = schema.named("BEGIN; LOCK TABLE {t}_meta");
    other.batch_execute(&lock).await.unwrap();
    let leader = store.clone();
    let election = tokio::spawn(async move { leader.lead(PATIENCE).await });
    until("the election waits", || async {
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{t}_meta'::regclass";
        schema.number(waiting).await == 1
    })
    .await;
    assert_eq!(store.erase(&lease.owner.key).await.unwrap(), Erasure::Erased);
    assert!(!election.is_finished(), "the operator waited for the election");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(election.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_key_without_waiters_is_not_notified() {
    let schema = Schema::new();
    let store = schema.store().await;
    let lease = granted(&store, &claim_of(key())).await;
    store.claim(&claim_of(lease.owner.key)).await.unwrap();
    assert_eq!(schema.number("SELECT count(*) FROM {t} WHERE waited").await, 1);
    granted(&store, &claim_of(key())).await;
    assert_eq!(schema.number("SELECT count(*) FROM {t} WHERE waited").await, 1);
}

#[tokio::test]
async fn one_process_at_a_time_leads_the_maintenance() {
    let schema = Schema::new();
    let (one, other) = (schema.store().await, schema.store().await);
    let term = Duration::from_secs(60);
    assert!(one.lead(term).await.unwrap());
    assert!(!other.lead(term).await.unwrap());
    assert!(one.lead(Duration::from_millis(1)).await.unwrap(), "the leader may lead again");
    until("the term ends", || async { other.lead(term).await.unwrap() }).await;
    assert!(!one.lead(term).await.unwrap());
}

/// A node that fails over extends the failback window at once, even while its maintenance connection is busy.
#[tokio::test]
async fn maintenance_does_not_delay_a_failover() {
    let schema = Schema::new();
    let url = format!("{}?application_name={}", schema.url, schema.name);
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(1).migrate(true);
    let store = builder.lock_timeout(Duration::from_secs(60)).connect().await.unwrap();
    let mut locker = schema.client().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute(&schema.named("LOCK TABLE {t} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let statistics = tokio::spawn({
        let store = store.clone();
        async move { store.stats().await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = '{s}' AND wait_event_type = 'Lock'";
    let waiting = waiting.replace("{s}", &schema.name);
    until("the statistics wait", || async { schema.number(&waiting).await > 0 }).await;
    let extended = tokio::time::timeout(PATIENCE, store.extend_to(PATIENCE)).await;
    assert!(extended.expect("the window waits for the statistics").unwrap() > Duration::ZERO);
    lock.rollback().await.unwrap();
    statistics.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_process_with_another_hash_secret_is_refused() {
    let schema = Schema::new();
    let secret = || HashSecret::from_bytes(b"a secret of sixteen bytes or more").unwrap();
    let store = schema.builder().hash_secret(secret()).connect().await.unwrap();
    assert_eq!(store.info().hash_secret, Some(secret()));
    schema.builder().hash_secret(secret()).connect().await.unwrap();
    for other in [schema.builder(), schema.builder().hash_secret(HashSecret::random())] {
        let error = other.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("hash secret"), "{error}");
    }
}

/// After a failover to an empty database, or when the tables were created again.
#[tokio::test]
async fn a_reconnected_process_sets_the_hash_secret_of_an_empty_table() {
    let schema = Schema::new();
    let secret = || HashSecret::from_bytes(b"a secret of sixteen bytes or more").unwrap();
    let url = format!("{}?application_name={}", schema.url, schema.name);
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(2).migrate(true);
    let store = builder.hash_secret(secret()).connect().await.unwrap();
    let lose = "DROP SCHEMA {s} CASCADE;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{s}'";
    schema.sql(&lose.replace("{s}", &schema.name)).await;
    until("the tables are missing", || async {
        let error = store.claim(&claim_of(key())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        error.to_string().contains("there is no table")
    })
    .await;
    schema.builder().apply_migrations().await.unwrap();
    until("it works again", || async { store.claim(&claim_of(key())).await.is_ok() }).await;
    let error = schema.builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("hash secret"), "{error}");
    schema.builder().hash_secret(secret()).connect().await.unwrap();
}
