//! T3: a claim with another fingerprint is refused before the state of the key is checked.

use semel_core::{Claim, Effect, Store};

use crate::{
    LEASE, Time,
    operation::{TestOperation, failure, success},
};

/// Claims the key with another fingerprint, and asserts that the record does not change.
async fn refused(operation: &TestOperation<'_>, situation: &str) {
    let before = operation.record().await;
    let reply = operation.with_other_fingerprint().claim().await;
    assert_eq!(reply, Claim::Mismatch, "another fingerprint while {situation}");
    operation.assert_unchanged(&before, "a mismatch changes nothing").await;
}

/// Another fingerprint is refused while the owner's lease runs.
pub async fn another_fingerprint_is_refused_in_progress(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.owned().await;
    refused(&operation, "in progress").await;
}

/// Another fingerprint does not take over a lapsed lease.
pub async fn another_fingerprint_is_refused_after_the_lease(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    operation.lost(time).await;
    refused(&operation, "the lease is over").await;
}

/// Another fingerprint does not put a lost owner on hold.
pub async fn another_fingerprint_is_refused_after_the_lease_on_hold(
    store: &dyn Store,
    time: &dyn Time,
) {
    let operation = TestOperation::new(store).lease(LEASE).hold();
    operation.lost(time).await;
    assert_eq!(
        operation.with_other_fingerprint().claim().await,
        Claim::Mismatch,
        "another fingerprint on hold"
    );
}

/// Another fingerprint does not get the outcome of a completed key.
pub async fn another_fingerprint_is_refused_when_completed(store: &dyn Store, _: &dyn Time) {
    let (succeeded, failed) = (TestOperation::new(store), TestOperation::new(store));
    succeeded.completed(&success("done")).await;
    failed.completed(&failure()).await;
    refused(&succeeded, "completed").await;
    refused(&failed, "completed with a failure").await;
}

/// Another fingerprint is refused while the key is unknown.
pub async fn another_fingerprint_is_refused_when_unknown(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).hold();
    operation.unknown().await;
    refused(&operation, "unknown").await;
}

/// Another fingerprint is refused when the key is dead.
pub async fn another_fingerprint_is_refused_when_dead(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store).cap(1);
    operation.dead().await;
    refused(&operation, "dead").await;
}

/// A key released for a retry stays pinned to its fingerprint.
pub async fn another_fingerprint_is_refused_before_a_retry(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    operation.released(Effect::Possible).await;
    refused(&operation, "waiting for a retry").await;
}

/// The fingerprint is checked before the nonce: not even the owner may change it.
pub async fn another_fingerprint_is_refused_for_the_owner_too(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let before = operation.record().await;
    let reply = operation.with_other_fingerprint().claim_as(owner).await;
    assert_eq!(reply, Claim::Mismatch, "a nonce was used for two requests");
    operation.assert_unchanged(&before, "a mismatch changes nothing").await;
}
