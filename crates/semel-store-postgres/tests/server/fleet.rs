//! Several processes on one table.

use std::{sync::Arc, time::Duration};

use semel_core::{
    Claim, CompleteRequest, Erasure, ErrorKind, FailbackWindow, HashSecret, Outcome, Store,
};
use semel_store_postgres::PostgresStore;

use crate::common::{Schema, claim_of, granted, key, until};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_completion_wakes_who_waits_on_another_node() {
    let schema = Schema::new();
    let (owner, other) = (schema.store().await, schema.store().await);
    let feed = other.info().change_feed.unwrap();
    let key = key();
    // Only once the other node listens on the server is it certain to be told.
    until("somebody listens", || async {
        schema.number("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").await > 0
    })
    .await;
    let lease = granted(&owner, &claim_of(key)).await;
    let mut listener = feed.subscribe(&key);
    assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Busy { .. }));
    let outcome = Arc::new(Outcome::success("done"));
    owner.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    tokio::time::timeout(PATIENCE, listener.changed()).await.expect("nobody was told");
    assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Replay(_)));
}

#[tokio::test]
async fn what_an_operator_does_is_told_to_caches_everywhere() {
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
        tokio::time::timeout(PATIENCE, listener.changed()).await.expect("nobody was told");
    }
}

/// However many meet an empty table at once.
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_know_their_table_by_one_identity() {
    let schema = Schema::new();
    schema.builder().apply_migrations().await.unwrap();
    let looking = schema.builder().look_only(true).connect().await.unwrap();
    assert_eq!(looking.info().identity, None, "who looks settles nothing");
    let nodes = futures_util::future::join_all((0..8).map(|_| schema.store())).await;
    let mut identities: Vec<_> = nodes.iter().map(|node| node.info().identity.unwrap()).collect();
    identities.dedup();
    assert_eq!(identities.len(), 1);
    let other = schema.builder().table("other").connect().await.unwrap();
    assert_ne!(other.info().identity, Some(identities[0]));
}

#[tokio::test]
async fn an_operator_does_not_wait_for_chores() {
    let schema = Schema::new();
    let builder = schema.builder().lock_timeout(2 * PATIENCE);
    let store = builder.call_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let lease = granted(&store, &claim_of(key())).await;
    let other = schema.client().await;
    let lock = schema.named("BEGIN; LOCK TABLE {t}_meta");
    other.batch_execute(&lock).await.unwrap();
    let chore = store.clone();
    let chore = tokio::spawn(async move { chore.lead(PATIENCE).await });
    until("the chore waits", || async {
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{t}_meta'::regclass";
        schema.number(waiting).await == 1
    })
    .await;
    assert_eq!(store.erase(&lease.owner.key).await.unwrap(), Erasure::Erased);
    assert!(!chore.is_finished(), "it waited for the chore");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(chore.await.unwrap().unwrap());
}

#[tokio::test]
async fn nobody_is_told_of_a_key_that_nobody_waits_for() {
    let schema = Schema::new();
    let store = schema.store().await;
    let lease = granted(&store, &claim_of(key())).await;
    store.claim(&claim_of(lease.owner.key)).await.unwrap();
    assert_eq!(schema.number("SELECT count(*) FROM {t} WHERE waited").await, 1);
    granted(&store, &claim_of(key())).await;
    assert_eq!(schema.number("SELECT count(*) FROM {t} WHERE waited").await, 1);
}

#[tokio::test]
async fn one_process_at_a_time_cleans_up() {
    let schema = Schema::new();
    let (one, other) = (schema.store().await, schema.store().await);
    let term = Duration::from_secs(60);
    assert!(one.lead(term).await.unwrap());
    assert!(!other.lead(term).await.unwrap());
    assert!(one.lead(Duration::from_millis(1)).await.unwrap(), "who leads goes on leading");
    until("the term ends", || async { other.lead(term).await.unwrap() }).await;
    assert!(!one.lead(term).await.unwrap());
}

/// A node that takes over asks for its time at once, whatever its own cleanup is at.
#[tokio::test]
async fn chores_do_not_hold_up_a_failover() {
    let schema = Schema::new();
    let url = format!("{}?application_name={}", schema.url, schema.name);
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(1).migrate(true);
    let store = builder.lock_timeout(Duration::from_secs(60)).connect().await.unwrap();
    let mut locker = schema.client().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute(&schema.named("LOCK TABLE {t} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let chore = tokio::spawn({
        let store = store.clone();
        async move { store.stats().await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = '{s}' AND wait_event_type = 'Lock'";
    let waiting = waiting.replace("{s}", &schema.name);
    until("a chore is held up", || async { schema.number(&waiting).await > 0 }).await;
    let asked = tokio::time::timeout(PATIENCE, store.extend_to(PATIENCE)).await;
    assert!(asked.expect("it waits for a chore").unwrap() > Duration::ZERO);
    lock.rollback().await.unwrap();
    chore.await.unwrap().unwrap();
}

#[tokio::test]
async fn processes_that_hash_differently_do_not_meet() {
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

/// A failover to an empty database, or somebody who made the tables anew.
#[tokio::test]
async fn a_process_that_connects_again_settles_the_secret_as_at_first() {
    let schema = Schema::new();
    let secret = || HashSecret::from_bytes(b"a secret of sixteen bytes or more").unwrap();
    let url = format!("{}?application_name={}", schema.url, schema.name);
    let builder = PostgresStore::builder(url).schema(&schema.name).connections(2).migrate(true);
    let store = builder.hash_secret(secret()).connect().await.unwrap();
    let lose = "DROP SCHEMA {s} CASCADE;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{s}'";
    schema.sql(&lose.replace("{s}", &schema.name)).await;
    until("tables are missed", || async {
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
