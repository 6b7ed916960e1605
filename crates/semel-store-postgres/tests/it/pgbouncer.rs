//! Behind PgBouncer: a pool in session mode works, any other is refused with the fix.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use semel_core::{Claim, CompleteRequest, ErrorKind, Level, Outcome, Store};
use semel_servers::{Running, pgbouncer};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};

use tokio_postgres::SimpleQueryMessage;

use crate::common::{Schema, claim_of, client, granted, key, until, url};

const FIX: &str = "pool_mode = session";

/// A pool in front of the server for tests.
fn pool(settings: &[&str]) -> Running {
    let url = url();
    let (_, address) = url.rsplit_once(':').unwrap();
    let (port, _) = address.split_once('/').unwrap();
    Running::start(&pgbouncer(port.parse().unwrap(), settings)).unwrap()
}

fn behind(pool: &Running, schema: &Schema) -> PostgresStoreBuilder {
    let url = format!("{}?application_name={}", pool.url(), schema.name);
    PostgresStore::builder(url).schema(&schema.name).connections(2)
}

async fn assert_refused(pool: &Running, schema: &Schema) {
    let error = behind(pool, schema).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(FIX), "{error}");
}

/// The `lock_timeout` that a new client finds on the connection that was used last.
async fn lock_timeout(pool: &Running) -> String {
    let found = client(pool.url()).await.simple_query("SHOW lock_timeout").await.unwrap();
    let row = found.iter().find_map(|it| match it {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}

/// Clients that use the pool's connections all the time, until this is dropped.
struct OtherClients(Arc<AtomicBool>);

impl OtherClients {
    async fn start(pool: &Running, count: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..count {
            let (client, ended) = (client(pool.url()).await, ended.clone());
            tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    client.batch_execute("SELECT pg_sleep(0.002)").await.unwrap();
                }
            });
        }
        Self(ended)
    }
}

impl Drop for OtherClients {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_pool_that_shares_connections_is_refused_with_the_fix() {
    let schema = Schema::new();
    schema.builder().apply_migrations().await.unwrap();
    for settings in [
        &["pool_mode = transaction"][..],
        &["pool_mode = transaction", "default_pool_size = 1"],
        &["pool_mode = transaction", "server_round_robin = 1", "min_pool_size = 2"],
        &["pool_mode = statement"],
    ] {
        let pool = pool(settings);
        assert_refused(&pool, &schema).await;
        assert_refused(&pool, &schema).await;
        let error = behind(&pool, &schema).apply_migrations().await.unwrap_err();
        assert!(error.to_string().contains(FIX), "{error}");
        let findings = behind(&pool, &schema).checks().await.unwrap();
        let has_fix = |level, fix: &str| {
            findings.iter().any(|it| it.level == level && it.fix.iter().any(|it| it.contains(fix)))
        };
        assert!(has_fix(Level::Bad, FIX), "{findings:?}");
        assert_eq!(
            lock_timeout(&pool).await,
            "0",
            "the setting would stay for another application"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_pool_is_refused_while_other_clients_use_it() {
    let schema = Schema::new();
    schema.builder().apply_migrations().await.unwrap();
    for settings in
        [&["pool_mode = transaction"][..], &["pool_mode = transaction", "server_round_robin = 1"]]
    {
        let pool = pool(settings);
        for count in [1, 5] {
            let _others = OtherClients::start(&pool, count).await;
            for _ in 0..5 {
                assert_refused(&pool, &schema).await;
            }
        }
    }
}

#[tokio::test]
async fn two_stores_behind_a_pool_in_session_mode_share_keys_and_change_feed() {
    let schema = Schema::new();
    let pool = pool(&["pool_mode = session"]);
    let (one, other) = (
        behind(&pool, &schema).migrate(true).connect().await.unwrap(),
        behind(&pool, &schema).connect().await.unwrap(),
    );
    let findings = behind(&pool, &schema).checks().await.unwrap();
    assert!(findings.iter().all(|it| it.level != Level::Bad), "{findings:?}");
    let listening = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND query LIKE 'LISTEN %'",
        schema.name
    );
    until("both listen", || async { schema.number(&listening).await == 2 }).await;
    for _ in 0..20 {
        let key = key();
        let lease = granted(&one, &claim_of(key)).await;
        let mut listener = other.info().change_feed.unwrap().subscribe(&key);
        assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Busy { .. }));
        let outcome = Arc::new(Outcome::success("done"));
        one.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        let notified = tokio::time::timeout(Duration::from_secs(30), listener.changed()).await;
        notified.expect("the other store is not notified");
        assert!(matches!(other.claim(&claim_of(key)).await.unwrap(), Claim::Replay(_)));
    }
}

#[tokio::test]
async fn options_that_a_pool_does_not_pass_on_are_refused_by_name() {
    let schema = Schema::new();
    let pool = pool(&["pool_mode = session"]);
    let url = format!("{}?options=-c%20work_mem%3D8MB", pool.url());
    let error = PostgresStore::builder(url).schema(&schema.name).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("leave options out of the URL"), "{error}");
}
