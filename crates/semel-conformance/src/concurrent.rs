//! Runs promises and state machines concurrently, for stores on servers, where most of the time is waiting.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    thread,
};

use futures_util::FutureExt;
use semel_core::Store;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{ALL, Promise, RealTime, Subject, state_machine};

/// Promises that are checked at the same time.
const AT_ONCE: usize = 32;

/// Checks a store against every promise, many at the same time. On a busy machine a lease of 300 ms may end too
/// early, so a promise that fails is checked again alone; a store that breaks the promise fails then too. Races need
/// all processors: they are checked last, one after the other, and are not repeated.
///
/// # Panics
///
/// At the first promise that the store breaks.
pub async fn store_at_once(store: impl Store, time: RealTime) {
    let (races, others): (Vec<&Promise>, Vec<&Promise>) =
        ALL.iter().partition(|promise| promise.name().starts_with("concurrency::"));
    assert!(!races.is_empty(), "races are recognised by their name");
    let (store, slots) = (Arc::new(store), Arc::new(Semaphore::new(AT_ONCE)));
    let mut checks = JoinSet::new();
    for promise in others {
        let (store, slots) = (store.clone(), slots.clone());
        checks.spawn(async move {
            let _slot = slots.acquire_owned().await.expect("the semaphore is never closed");
            let checked = promise.check(&*store, &time);
            (promise, AssertUnwindSafe(checked).catch_unwind().await)
        });
    }
    for (promise, checked) in checks.join_all().await {
        if checked.is_err() {
            eprintln!("{promise:?} is checked again, alone");
            promise.check(&*store, &time).await;
        }
    }
    for race in races {
        race.check(&*store, &time).await;
    }
}

/// [`state_machine`] on each of several threads.
///
/// # Panics
///
/// As [`state_machine`].
pub fn state_machines<S: Subject>(threads: usize, cases: u32, steps: usize) {
    thread::scope(|scope| {
        let run = || state_machine::<S>(cases, steps);
        let machines: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        for machine in machines {
            machine.join().unwrap_or_else(|cause| resume_unwind(cause));
        }
    });
}
