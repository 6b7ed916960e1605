//! T6: only the owner can renew a lease, and only until `max_run`.

use std::time::Duration;

use semel_core::{Claim, Effect, Owner, Renewal, Store};

use crate::{
    LEASE, Time,
    operation::{LONG, TestOperation, other_nonce, other_token, success},
};

/// Renews as another owner, and asserts that the record does not change.
async fn refused(operation: &TestOperation<'_>, owner: Owner, owner_name: &str) {
    let before = operation.record().await;
    assert_eq!(operation.renew(owner).await, Renewal::Lost, "renewed by {owner_name}");
    operation.assert_unchanged(&before, "a refused renewal changes nothing").await;
}

/// A renewal of the owner starts the lease again and changes nothing else.
pub async fn the_owner_renews(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    let before = operation.record().await;
    time.pass(LEASE).await;
    assert_eq!(operation.renew(owner).await, Renewal::Extended, "the owner could not renew");
    let after = operation.record().await;
    assert!(after.lease_until > before.lease_until, "a renewed lease ends later");
    assert!(after.expires_at > before.expires_at, "the expiry moves with the lease");
    let same = semel_core::Record {
        lease_until: before.lease_until,
        expires_at: before.expires_at,
        ..after
    };
    assert_eq!(same, before, "a renewal moves the lease and nothing else");
}

/// A renewed lease keeps other claims busy after the first lease would have ended.
pub async fn a_renewed_lease_holds_others_off(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.lapsed(time).await;
    assert_eq!(operation.renew(owner).await, Renewal::Extended, "lapsed, without a takeover");
    let Claim::Busy { remaining } = operation.claim().await else {
        panic!("a renewed lease did not keep a contender busy");
    };
    assert!(remaining <= LEASE, "a renewal is for the owner's own lease");
}

/// A renewed lease ends again.
pub async fn a_renewed_lease_lapses_again(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let owner = operation.owned().await;
    operation.renew(owner).await;
    time.pass(LEASE).await;
    operation.contest(time).await;
    assert!(operation.granted().await.takeover, "a renewed lease did not lapse");
}

/// The token alone does not renew.
pub async fn another_nonce_cannot_renew(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    refused(&operation, other_nonce(owner), "another nonce").await;
}

/// The nonce alone does not renew.
pub async fn another_token_cannot_renew(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    refused(&operation, other_token(owner), "another token").await;
}

/// A lease is not renewed once it has run for `max_run`.
pub async fn a_lease_is_not_renewed_beyond_max_run(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    assert_eq!(operation.renew_within(owner, Duration::ZERO).await, Renewal::Lost, "no run at all");
    time.pass(LEASE).await;
    let before = operation.record().await;
    assert_eq!(operation.renew_within(owner, LEASE).await, Renewal::Lost, "renewed beyond max_run");
    operation.assert_unchanged(&before, "a refused renewal changes nothing").await;
    assert_eq!(operation.renew_within(owner, LONG).await, Renewal::Extended, "within max_run");
}

/// `max_run` counts from the claim, not from the last renewal.
pub async fn a_renewal_does_not_restart_max_run(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    time.pass(LEASE).await;
    assert_eq!(operation.renew(owner).await, Renewal::Extended, "within max_run");
    assert_eq!(operation.renew_within(owner, LEASE).await, Renewal::Lost, "max_run started again");
}

/// An owner that was taken over cannot renew.
pub async fn a_stale_owner_cannot_renew(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE);
    let stale = operation.lost(time).await;
    operation.clone().lease(LONG).owned().await;
    refused(&operation, stale, "an owner that was taken over").await;
}

/// An owner that abandoned a key cannot renew it, and does not block a takeover.
pub async fn an_abandoned_lease_cannot_be_renewed(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let owner = operation.owned().await;
    operation.abandon(owner, LONG).await;
    refused(&operation, owner, "an owner that abandoned its key").await;
}

/// A key that is completed, released or unknown is not renewed.
pub async fn only_work_in_progress_is_renewed(store: &dyn Store, _: &dyn Time) {
    let [done, open, unknown] =
        [TestOperation::new(store), TestOperation::new(store), TestOperation::new(store).hold()];
    let owner = done.completed(&success("done")).await;
    refused(&done, owner, "an owner that completed its key").await;
    let owner = open.released(Effect::None).await;
    refused(&open, owner, "an owner that released its key").await;
    let owner = unknown.unknown().await;
    refused(&unknown, owner, "the owner of an unknown key").await;
}

/// The renewal of a key without a record is refused and makes no record.
pub async fn a_renewal_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let operation = TestOperation::new(store);
    let stranger = Owner { key: operation.key, nonce: operation.request().nonce, token: 1 };
    assert_eq!(operation.renew(stranger).await, Renewal::Lost, "nothing was renewed");
    assert_eq!(operation.get().await, None, "a renewal made a record");
}
