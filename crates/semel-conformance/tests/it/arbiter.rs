//! The arbiter keeps every promise, with and without a cache.

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{Arbiter, Cached, ManualClock, MemoryReplicaCache, MemoryStore, Store};

struct ManualArbiter<S>(S, ManualClock);

type MemoryArbiter = Arbiter<MemoryReplicaCache, MemoryStore>;

fn arbiter(clock: &ManualClock) -> MemoryArbiter {
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    Arbiter::new(MemoryReplicaCache::with_clock(clock.clone()), store)
}

impl Subject for ManualArbiter<MemoryArbiter> {
    async fn open() -> Self {
        let clock = ManualClock::new();
        Self(arbiter(&clock), clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

impl Subject for ManualArbiter<Cached<MemoryArbiter>> {
    async fn open() -> Self {
        let clock = ManualClock::new();
        let cached = Cached::builder(arbiter(&clock)).clock(clock.clone()).build();
        Self(cached, clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

mod on_a_manual_clock {
    use super::*;

    semel_conformance::store_tests!({
        let ManualArbiter(store, clock) = ManualArbiter::<MemoryArbiter>::open().await;
        (store, clock)
    });
}

mod under_a_cache {
    use super::*;

    semel_conformance::store_tests!({
        let ManualArbiter(store, clock) = ManualArbiter::<Cached<MemoryArbiter>>::open().await;
        (store, clock)
    });
}

mod on_a_real_clock {
    use super::*;

    semel_conformance::store_tests!((
        Arbiter::new(MemoryReplicaCache::new(), MemoryStore::new()),
        RealTime::default()
    ));
}

#[test]
fn every_answer_follows_the_protocol() {
    state_machine::<ManualArbiter<MemoryArbiter>>(500, 50);
}

#[test]
fn every_answer_follows_the_protocol_under_a_cache() {
    state_machine::<ManualArbiter<Cached<MemoryArbiter>>>(500, 50);
}
