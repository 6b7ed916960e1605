//! Tests of the store suite: every store with a planted bug breaks a promise, and fails the state machine if a
//! sequence of steps can show the bug.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use semel_conformance::{ALL, Promise, Subject, Time, state_machine};
use semel_core::{ManualClock, Store};
use semel_planted_bugs::{BuggyStore, PlantedBug};
use tokio::runtime::Runtime;

thread_local! {
    static FLAW: Cell<&'static PlantedBug> = const { Cell::new(&PlantedBug::NONE) };
}

struct FlawedSubject(BuggyStore, ManualClock);

impl Subject for FlawedSubject {
    async fn open() -> Self {
        let clock = ManualClock::new();
        Self(BuggyStore::new(FLAW.get(), clock.clone()), clock)
    }
    fn store(&self) -> &dyn Store {
        &self.0
    }
    fn time(&self) -> &dyn Time {
        &self.1
    }
}

fn breaks(runtime: &Runtime, flaw: &'static PlantedBug, promise: &Promise) -> bool {
    let clock = ManualClock::new();
    let store = BuggyStore::new(flaw, clock.clone());
    let check = || runtime.block_on(promise.check(&store, &clock));
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

#[test]
fn a_store_without_a_bug_keeps_every_promise() {
    let runtime = Runtime::new().unwrap();
    for promise in ALL {
        assert!(!breaks(&runtime, &PlantedBug::NONE, promise), "{promise:?}");
    }
    state_machine::<FlawedSubject>(100, 50);
}

#[test]
fn every_planted_bug_breaks_a_promise() {
    let runtime = Runtime::new().unwrap();
    for flaw in semel_planted_bugs::all() {
        let broken: Vec<_> = ALL.iter().filter(|p| breaks(&runtime, flaw, p)).collect();
        println!("{}: {broken:?}", flaw.name);
        assert!(!broken.is_empty(), "no promise catches that {}", flaw.name);
    }
}

#[test]
fn every_planted_bug_fails_the_state_machine() {
    for flaw in semel_planted_bugs::all().filter(|flaw| flaw.shows_in_sequence) {
        FLAW.set(flaw);
        let caught = catch_unwind(|| state_machine::<FlawedSubject>(1_000, 50));
        let message = caught.expect_err(flaw.name).downcast::<String>().unwrap();
        println!("{}: {message}\n", flaw.name);
        assert!(message.contains("PROPTEST_RNG_SEED="), "a failure names its seed");
    }
}
