//! What the tests of the store share.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

use semel_conformance::{RealTime, Subject, state_machines, store_at_once};
use semel_core::Store;
use semel_store_redis::{RedisStore, RedisStoreBuilder};

pub(crate) use semel_conformance::fixture::{LONG, completion, granted, request, until};

/// A prefix nobody else has.
pub(crate) fn prefix(test: &str) -> String {
    format!("{test}-{:016x}", rand::random::<u64>())
}

/// The store at `url`, with keys of its own.
pub(crate) fn at(url: &str, test: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix(test))
}

pub(crate) async fn keeps_every_promise(store: impl Store) {
    store_at_once(store, RealTime::default()).await;
}

pub(crate) fn follows_the_protocol<S: Subject>(threads: usize) {
    state_machines::<S>(threads, 2, 30);
}
