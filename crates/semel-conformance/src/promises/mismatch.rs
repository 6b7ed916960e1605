//! T3: a key that stands for something else is refused before its state is looked at.

use semel_core::{Claim, Effect, Store};

use crate::{
    LEASE, Time,
    work::{Work, failed, said},
};

/// Claims the key for something else; the record must not notice.
async fn refused(work: &Work<'_>, situation: &str) {
    let before = work.record().await;
    let answer = work.other().claim().await;
    assert_eq!(answer, Claim::Mismatch, "another fingerprint while {situation}");
    work.unchanged(&before, "a mismatch changes nothing").await;
}

/// Another fingerprint is refused while the owner's lease runs.
pub async fn another_fingerprint_is_refused_in_progress(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    work.owned().await;
    refused(&work, "in progress").await;
}

/// Another fingerprint does not take over a lapsed lease.
pub async fn another_fingerprint_is_refused_after_the_lease(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    work.lapsed(time).await;
    refused(&work, "the lease is over").await;
}

/// Another fingerprint does not put a lost owner on hold.
pub async fn another_fingerprint_is_refused_after_the_lease_on_hold(
    store: &dyn Store,
    time: &dyn Time,
) {
    let work = Work::new(store).lease(LEASE).hold();
    work.lapsed(time).await;
    assert_eq!(work.other().claim().await, Claim::Mismatch, "another fingerprint on hold");
}

/// Another fingerprint does not get the outcome of a completed key.
pub async fn another_fingerprint_is_refused_when_completed(store: &dyn Store, _: &dyn Time) {
    let (success, failure) = (Work::new(store), Work::new(store));
    success.completed(&said("done")).await;
    failure.completed(&failed()).await;
    refused(&success, "completed").await;
    refused(&failure, "completed with a failure").await;
}

/// Another fingerprint is refused while the key is unknown.
pub async fn another_fingerprint_is_refused_when_unknown(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store).hold();
    work.unknown().await;
    refused(&work, "unknown").await;
}

/// Another fingerprint is refused when the key is dead.
pub async fn another_fingerprint_is_refused_when_dead(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store).cap(1);
    work.dead().await;
    refused(&work, "dead").await;
}

/// A key released for a retry stays pinned to what was asked.
pub async fn another_fingerprint_is_refused_before_a_retry(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    work.released(Effect::Possible).await;
    refused(&work, "waiting for a retry").await;
}

/// The fingerprint comes before the nonce: not even the owner may change what it asked.
pub async fn another_fingerprint_is_refused_for_the_owner_too(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    let before = work.record().await;
    let answer = work.other().claim_as(owner).await;
    assert_eq!(answer, Claim::Mismatch, "a nonce was used for two requests");
    work.unchanged(&before, "a mismatch changes nothing").await;
}
