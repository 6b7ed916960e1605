//! Stores on real servers, where most of a test's time is waiting.

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

/// Holds a store to every promise, many at once. What a busy machine broke, since leases are of 300 ms, is
/// asked again alone; a store that breaks a promise breaks it then too. Races need every processor: they
/// come last, one by one, and have to hold at once.
///
/// # Panics
///
/// At the first promise the store breaks.
pub async fn store_at_once(store: impl Store, time: RealTime) {
    let (races, others): (Vec<&Promise>, Vec<&Promise>) =
        ALL.iter().partition(|promise| promise.name().starts_with("concurrency::"));
    assert!(!races.is_empty(), "races are told by their name");
    let (store, places) = (Arc::new(store), Arc::new(Semaphore::new(AT_ONCE)));
    let mut checks = JoinSet::new();
    for promise in others {
        let (store, places) = (store.clone(), places.clone());
        checks.spawn(async move {
            let _place = places.acquire_owned().await.expect("nobody closes it");
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
