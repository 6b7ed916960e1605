//! Runs a promise of the conformance suite against a store with a planted bug.

use std::panic::{AssertUnwindSafe, catch_unwind};

use semel_conformance::ALL;
use semel_core::ManualClock;
use semel_planted_bugs::{BuggyStore, PlantedBug};
use tokio::runtime::Runtime;

/// True when a store with this bug keeps the promise with this name.
pub(crate) fn holds(bug: &'static PlantedBug, name: &str) -> bool {
    let promise =
        ALL.iter().find(|it| it.name() == name).expect("a promise of the conformance suite");
    let runtime = Runtime::new().expect("a runtime");
    let clock = ManualClock::new();
    let store = BuggyStore::new(bug, clock.clone());
    let check = || runtime.block_on(promise.check(&store, &clock));
    catch_unwind(AssertUnwindSafe(check)).is_ok()
}
