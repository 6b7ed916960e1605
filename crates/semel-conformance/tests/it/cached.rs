//! A cached store keeps every promise.

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{Cached, ManualClock, MemoryStore, Store};

struct ManualCached(Cached<MemoryStore>, ManualClock);

impl Subject for ManualCached {
    async fn open() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        Self(Cached::builder(store).clock(clock.clone()).build(), clock)
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
        let ManualCached(store, clock) = ManualCached::open().await;
        (store, clock)
    });
}

mod on_a_real_clock {
    use super::*;

    semel_conformance::store_tests!((Cached::new(MemoryStore::new(), 1000), RealTime::default()));
}

#[test]
fn every_answer_follows_the_protocol() {
    state_machine::<ManualCached>(1000, 50);
}
