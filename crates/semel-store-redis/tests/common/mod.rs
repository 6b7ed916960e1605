//! What the tests of the store share.

#![allow(dead_code, reason = "each test binary uses its part")]
#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::{sync::Arc, time::Duration};

use semel_conformance::{ALL, RealTime};
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Lease, Nonce, OnLostOwner, Outcome,
    Owner, Store, Terms,
};
use semel_store_redis::{RedisStore, RedisStoreBuilder};
use tokio::{sync::Semaphore, task::JoinSet};

/// A prefix nobody else has.
pub(crate) fn prefix(test: &str) -> String {
    format!("{test}-{:016x}", rand::random::<u64>())
}

/// The store at `url`, with keys of its own.
pub(crate) fn at(url: &str, test: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix(test))
}

/// Every promise of the protocol, several at a time: most of their time is waiting.
pub(crate) async fn keeps_every_promise(store: impl Store) {
    let (store, places) = (Arc::new(store), Arc::new(Semaphore::new(8)));
    let mut checks = JoinSet::new();
    for promise in ALL {
        let (store, places) = (store.clone(), places.clone());
        checks.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            promise.check(&*store, &RealTime::default()).await;
        });
    }
    while let Some(checked) = checks.join_next().await {
        checked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
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
