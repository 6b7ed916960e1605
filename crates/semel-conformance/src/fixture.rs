//! Helpers for a store's own tests.

use std::{sync::Arc, time::Duration};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Lease, Nonce, OnLostOwner, Outcome,
    Owner, Store, Terms,
};

/// A lease that outlives a test.
pub const LONG: Duration = Duration::from_secs(60);

/// A claim of a random key with a random nonce.
#[must_use]
pub fn request(lease: Duration) -> ClaimRequest {
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

/// Sends a claim that must be granted.
///
/// # Panics
///
/// If it is not granted.
pub async fn granted(store: &dyn Store, request: &ClaimRequest) -> Lease {
    match store.claim(request).await {
        Ok(Claim::Granted(lease)) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// A success with this body.
#[must_use]
pub fn completion(owner: Owner, body: &str) -> CompleteRequest {
    CompleteRequest { owner, outcome: Arc::new(Outcome::success(body.to_owned())) }
}

/// Waits until `holds` returns true, for ten seconds at most.
///
/// # Panics
///
/// If it does not return true by then.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out: {what}");
}
