//! The memory store keeps every promise, on a manual clock and on a real clock.

use std::time::Duration;

use semel_conformance::{RealTime, Subject, Time, state_machine};
use semel_core::{ManualClock, MemoryStore, Store};

struct ManualMemory(MemoryStore, ManualClock);

impl Subject for ManualMemory {
    async fn open() -> Self {
        let clock = ManualClock::new();
        Self(MemoryStore::builder().clock(clock.clone()).build().expect("default bounds"), clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

struct RealMemory(MemoryStore, RealTime);

impl Subject for RealMemory {
    async fn open() -> Self {
        Self(MemoryStore::new(), RealTime::default())
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
    fn tolerance(&self) -> Duration {
        Duration::from_millis(50)
    }
}

mod on_a_manual_clock {
    use super::*;

    semel_conformance::store_tests!({
        let ManualMemory(store, clock) = ManualMemory::open().await;
        (store, clock)
    });

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<ManualMemory>(2_000, 50);
    }
}

mod on_a_real_clock {
    use super::*;

    semel_conformance::store_tests!((MemoryStore::new(), RealTime::default()));

    #[test]
    fn every_answer_follows_the_protocol() {
        state_machine::<RealMemory>(4, 30);
    }
}

#[tokio::test]
async fn all_promises_can_be_kept_by_one_store() {
    let ManualMemory(store, clock) = ManualMemory::open().await;
    semel_conformance::store(&store, &clock).await;
}

#[test]
fn the_list_names_every_promise() {
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/promises")).unwrap();
    let sources = sources.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let written: usize = sources.map(|text| text.matches("\npub async fn ").count()).sum();
    // The function `store` is no promise.
    assert_eq!(semel_conformance::ALL.len(), written - 1);
}
