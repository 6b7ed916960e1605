//! A front belongs to one authority: outcomes of another authority are not replayed from it.

use std::{io, sync::Mutex};

use semel_core::{Arbiter, Claim, ErrorKind, KeyHash, ReplicaCache, Store};
use semel_layers::TwoServers;

use super::arbiter::{completed, is_copied, request, until};

/// Collects the error lines that this process logs.
#[derive(Debug)]
struct ErrorLog;

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

impl io::Write for ErrorLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn copied(store: &dyn Store, front: &dyn ReplicaCache) -> KeyHash {
    let key = completed(store).await;
    until("the copy is there", async || is_copied(front, &key).await).await;
    key
}

async fn is_granted_by(store: &dyn Store, key: KeyHash) -> bool {
    matches!(store.claim(&request(key)).await.unwrap(), Claim::Granted(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_of_another_table_is_refused_with_the_fix() {
    let servers = TwoServers::start();
    let (one, other) = (servers.postgres().await, servers.table("other").await);
    let front = servers.front_of(&one).await.unwrap();
    let key = copied(&Arbiter::new(front.clone(), one), &front).await;
    let refused = servers.front_of(&other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("?prefix="), "{refused}");
    let second_node = servers.arbiter().await;
    assert!(matches!(second_node.claim(&request(key)).await.unwrap(), Claim::Replay(_)));
    let memory = semel_core::MemoryStore::new();
    let refused = servers.front_of(&memory).await.unwrap_err();
    assert!(refused.to_string().contains("has no identity"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_front_that_belongs_to_another_table_is_not_used() {
    let errors = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR);
    errors.with_ansi(false).with_writer(|| ErrorLog).init();
    let mut servers = TwoServers::start();
    let (one, other) = (servers.postgres().await, servers.table("other").await);
    let front = servers.front_of(&one).await.unwrap();
    let key = copied(&Arbiter::new(front.clone(), one), &front).await;
    servers.redis.kill().unwrap();
    let late = servers.front_of(&other).await.unwrap();
    let store = Arbiter::new(late.clone(), other);
    servers.redis.restart().unwrap();
    until("the error is logged", async || {
        let log = String::from_utf8_lossy(&LOGGED.lock().unwrap()).into_owned();
        log.contains("the front cannot be used") && log.contains("?prefix=")
    })
    .await;
    until("the front answers its own authority", async || is_copied(&front, &key).await).await;
    assert!(late.look(&[key]).await.pop().unwrap().is_err());
    assert!(is_granted_by(&store, key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_front_belongs_to_the_next_authority_that_uses_it() {
    let servers = TwoServers::start();
    let (one, other) = (servers.postgres().await, servers.table("other").await);
    let front = servers.front_of(&one).await.unwrap();
    let store = Arbiter::new(front.clone(), one);
    copied(&store, &front).await;
    servers.redis.ask(&["FLUSHALL"]).unwrap();
    until("the front is taken again", async || {
        copied(&store, &front).await;
        !servers.redis.ask(&["KEYS", "*front-of"]).unwrap().is_empty()
    })
    .await;
    assert!(servers.front_of(&other).await.is_err());

    servers.redis.ask(&["FLUSHALL"]).unwrap();
    let others = servers.front_of(&other).await.unwrap();
    let key = copied(&Arbiter::new(others.clone(), other), &others).await;
    until("the former authority notices", async || {
        front.look(&[key]).await.pop().unwrap().is_err()
    })
    .await;
    assert!(is_granted_by(&store, key).await);
}
