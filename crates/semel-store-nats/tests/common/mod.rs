//! Helpers for tests of the store, and of layers over it.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::time::Duration;

use semel_conformance::{RealTime, Subject, state_machines, store_at_once};
use semel_core::Store;
use semel_servers::needed;
use semel_store_nats::{NatsStore, NatsStoreBuilder};

pub(crate) use semel_conformance::fixture::{LONG, completion, granted, request, until};

/// The server that tests share.
pub(crate) fn shared() -> String {
    needed("SEMEL_TEST_NATS_URL")
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:016x}", rand::random::<u64>())
}

/// A store on the server at `url`, with a prefix that no other test uses.
pub(crate) fn at(url: &str, test: &str) -> NatsStoreBuilder {
    NatsStore::builder(&format!("{url}/semel-tests")).prefix(unique(test))
}

/// A takeover comes after 1.1 leases, and the longest lease of the tests is 600 ms.
pub(crate) const LATE: Duration = Duration::from_millis(110);

pub(crate) async fn keeps_every_promise(store: impl Store) {
    store_at_once(store, RealTime::with_margin(LATE)).await;
}

pub(crate) fn follows_the_protocol<S: Subject>(threads: usize) {
    state_machines::<S>(threads, 2, 30);
}
