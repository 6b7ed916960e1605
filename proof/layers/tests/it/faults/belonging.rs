//! A front belongs to one table: nobody is told what ran behind another.

use std::{io, sync::Mutex};

use semel_core::{Arbiter, Claim, ErrorKind, KeyHash, ReplicaCache, Store};
use semel_layers::Site;

use super::arbiter::{completed, is_copied, request, until};

/// What this process logs as an error.
#[derive(Debug)]
struct Log;

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

impl io::Write for Log {
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

async fn is_new_to(store: &dyn Store, key: KeyHash) -> bool {
    matches!(store.claim(&request(key)).await.unwrap(), Claim::Granted(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_of_another_table_is_refused_with_the_fix() {
    let site = Site::start();
    let (one, other) = (site.postgres().await, site.table("other").await);
    let front = site.front_of(&one).await.unwrap();
    let key = copied(&Arbiter::new(front.clone(), one), &front).await;
    let refused = site.front_of(&other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("?prefix="), "{refused}");
    let second_node = site.arbiter().await;
    assert!(matches!(second_node.claim(&request(key)).await.unwrap(), Claim::Replay(_)));
    let memory = semel_core::MemoryStore::new();
    let refused = site.front_of(&memory).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be told from others"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_that_comes_late_and_is_anothers_is_not_used() {
    let errors = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR);
    errors.with_ansi(false).with_writer(|| Log).init();
    let mut site = Site::start();
    let (one, other) = (site.postgres().await, site.table("other").await);
    let front = site.front_of(&one).await.unwrap();
    let key = copied(&Arbiter::new(front.clone(), one), &front).await;
    site.redis.kill().unwrap();
    let late = site.front_of(&other).await.unwrap();
    let store = Arbiter::new(late.clone(), other);
    site.redis.restart().unwrap();
    until("it is said", async || {
        let log = String::from_utf8_lossy(&LOGGED.lock().unwrap()).into_owned();
        log.contains("the front cannot be used") && log.contains("?prefix=")
    })
    .await;
    until("the other is back", async || is_copied(&front, &key).await).await;
    assert!(late.look(&[key]).await.pop().unwrap().is_err());
    assert!(is_new_to(&store, key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_front_is_taken_again_by_who_comes_first() {
    let site = Site::start();
    let (one, other) = (site.postgres().await, site.table("other").await);
    let front = site.front_of(&one).await.unwrap();
    let store = Arbiter::new(front.clone(), one);
    copied(&store, &front).await;
    site.redis.ask(&["FLUSHALL"]).unwrap();
    until("it is taken again", async || {
        copied(&store, &front).await;
        !site.redis.ask(&["KEYS", "*front-of"]).unwrap().is_empty()
    })
    .await;
    assert!(site.front_of(&other).await.is_err());

    site.redis.ask(&["FLUSHALL"]).unwrap();
    let others = site.front_of(&other).await.unwrap();
    let key = copied(&Arbiter::new(others.clone(), other), &others).await;
    until("it is noticed", async || front.look(&[key]).await.pop().unwrap().is_err()).await;
    assert!(is_new_to(&store, key).await);
}
