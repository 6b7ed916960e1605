//! Helpers for tests of the store, and of layers over it.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use semel_conformance::{RealTime, Subject, state_machines, store_at_once};
use semel_core::Store;
use semel_servers::{REDIS, Running, needed};
use semel_store_redis::{RedisStore, RedisStoreBuilder};

pub(crate) use semel_conformance::fixture::{LONG, completion, granted, request, until};

/// A prefix that no other test uses.
pub(crate) fn prefix(test: &str) -> String {
    format!("{test}-{:016x}", rand::random::<u64>())
}

/// The store at `url`, with a prefix that no other test uses.
pub(crate) fn at(url: &str, test: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix(test))
}

/// A server that no other test uses.
pub(crate) fn own() -> Running {
    Running::start(&REDIS).unwrap()
}

/// The server that tests share.
pub(crate) fn shared() -> String {
    needed("SEMEL_TEST_REDIS_URL")
}

pub(crate) async fn refusal(url: &str) -> String {
    let error = RedisStore::connect(url).await.unwrap_err();
    error.to_string()
}

/// True when the store can claim.
pub(crate) async fn works(store: &RedisStore) -> bool {
    store.claim(&request(LONG)).await.is_ok()
}

pub(crate) async fn keeps_every_promise(store: impl Store) {
    store_at_once(store, RealTime::default()).await;
}

pub(crate) fn follows_the_protocol<S: Subject>(threads: usize) {
    state_machines::<S>(threads, 2, 30);
}
