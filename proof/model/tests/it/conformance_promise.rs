//! A promise of the conformance kit, put to a flawed store.

use std::panic::{AssertUnwindSafe, catch_unwind};

use semel_conformance::ALL;
use semel_core::ManualClock;
use semel_planted_bugs::{Flaw, FlawedStore};
use tokio::runtime::Runtime;

/// True when a store with this flaw keeps the promise of this name.
pub(crate) fn holds(flaw: &'static Flaw, name: &str) -> bool {
    let promise = ALL.iter().find(|it| it.name() == name).expect("a promise of the kit");
    let runtime = Runtime::new().expect("a runtime");
    let clock = ManualClock::new();
    let store = FlawedStore::new(flaw, clock.clone());
    let check = || runtime.block_on(promise.check(&store, &clock));
    catch_unwind(AssertUnwindSafe(check)).is_ok()
}
