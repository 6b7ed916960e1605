//! Helpers of all tests here.

use std::{sync::Arc, time::Duration};

use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Fingerprint, KeyHash, Labels, Lease, Nonce, OnLostOwner,
    Outcome, Store, Terms,
};
use semel_sealed::{KeyRing, SealKey, SealKeys, Sealed};

/// A ring with fresh keys of these names.
pub(crate) fn ring(ids: &[&str]) -> KeyRing {
    let lines: Vec<String> = ids.iter().map(|id| line(id)).collect();
    KeyRing::new(keys(&lines.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Keys from lines; the first one seals.
pub(crate) fn keys(lines: &[&str]) -> SealKeys {
    SealKeys::parse(&lines.join("\n")).unwrap()
}

/// A fresh key of this name, as a key file has it.
pub(crate) fn line(id: &str) -> String {
    SealKey::random(id).unwrap().line().to_string()
}

pub(crate) fn sealed<S: Store>(store: S) -> Sealed<S> {
    Sealed::new(store, ring(&["new", "old"]))
}

/// A claim of this key.
pub(crate) fn request(key: KeyHash) -> ClaimRequest {
    let hour = Duration::from_secs(3600);
    ClaimRequest {
        key,
        // As an engine without a hash secret writes it.
        fingerprint: Fingerprint::of_bytes(b"this").sealed(None),
        nonce: Nonce::random(),
        terms: Terms {
            lease: hour.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: hour.into(),
            failure_retention: hour.into(),
        },
        labels: Some(Labels::new("canary-ns", "canary-who", "canary-op", "canary-id")),
    }
}

pub(crate) fn any_key() -> KeyHash {
    KeyHash::from_bytes(rand::random())
}

pub(crate) async fn granted(store: &dyn Store, request: &ClaimRequest) -> Lease {
    match store.claim(request).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// Claims the key and completes it with this outcome.
pub(crate) async fn done(store: &dyn Store, key: KeyHash, outcome: Arc<Outcome>) {
    let owner = granted(store, &request(key)).await.owner;
    store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
}
