//! What the tests of the store share.

#![allow(dead_code, reason = "each test binary uses its part")]
#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

pub(crate) mod proxy;

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use semel_conformance::{ALL, Promise, RealTime, Subject, state_machine};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Lease, Nonce, OnLostOwner, Outcome,
    Owner, Store, Terms,
};
use semel_store_nats::{NatsStore, NatsStoreBuilder};
use tokio::{sync::Semaphore, task::JoinSet};

/// A prefix nobody else has.
pub(crate) fn prefix(test: &str) -> String {
    format!("{test}-{:016x}", rand::random::<u64>())
}

/// A store on the server at `url`, with keys of its own.
pub(crate) fn at(url: &str, test: &str) -> NatsStoreBuilder {
    NatsStore::builder(&format!("{url}/semel-tests")).prefix(prefix(test))
}

/// A takeover takes 1.1 leases, and the tests' longest are of 600 ms.
pub(crate) const LATE: Duration = Duration::from_millis(110);

/// Every promise of the protocol, many at once: most of their time is waiting. What a busy machine broke,
/// since leases are of 300 ms, is asked again alone; a store that breaks a promise breaks it then too.
/// Races need every processor: they come last, one by one, and have to hold at once.
pub(crate) async fn keeps_every_promise(store: impl Store) {
    let (races, others): (Vec<&Promise>, Vec<&Promise>) =
        ALL.iter().partition(|promise| promise.name().starts_with("concurrency::"));
    assert!(!races.is_empty(), "races are told by their name");
    let (store, places) = (Arc::new(store), Arc::new(Semaphore::new(32)));
    let mut checks = JoinSet::new();
    for promise in others {
        let (store, places) = (store.clone(), places.clone());
        checks.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            let time = RealTime::with_margin(LATE);
            let checked = promise.check(&*store, &time);
            (promise, AssertUnwindSafe(checked).catch_unwind().await)
        });
    }
    for (promise, checked) in checks.join_all().await {
        if checked.is_err() {
            eprintln!("{promise:?} is checked again, alone");
            promise.check(&*store, &RealTime::with_margin(LATE)).await;
        }
    }
    for race in races {
        race.check(&*store, &RealTime::with_margin(LATE)).await;
    }
}

/// Compares the store with the protocol, two sequences on each of several threads: most of their time is
/// waiting.
pub(crate) fn follows_the_protocol<S: Subject>(threads: usize) {
    thread::scope(|scope| {
        let machines: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| state_machine::<S>(2, 30))).collect();
        for machine in machines {
            machine.join().unwrap_or_else(|cause| resume_unwind(cause));
        }
    });
}

/// A claim that nobody has made before.
pub(crate) fn request(lease: Duration) -> ClaimRequest {
    let hour = Duration::from_secs(3600);
    ClaimRequest {
        key: KeyHash::from_bytes(rand::random()),
        fingerprint: Fingerprint::of_bytes(b"this"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: lease.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: hour.into(),
            failure_retention: hour.into(),
        },
        labels: None,
    }
}

pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn granted(store: &dyn Store, request: &ClaimRequest) -> Lease {
    match store.claim(request).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn completion(owner: Owner, said: &str) -> CompleteRequest {
    CompleteRequest { owner, outcome: Arc::new(Outcome::success(said.to_owned())) }
}

/// Waits until `holds`, for ten seconds at most.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}
