//! T6: only the owner keeps a lease, and only for so long.

use std::time::Duration;

use semel_core::{Claim, Effect, Owner, Renewal, Store};

use crate::{
    LEASE, Time,
    work::{LONG, Work, other_nonce, other_token, said},
};

/// Renews as somebody who must not; the record must not notice.
async fn refused(work: &Work<'_>, owner: Owner, who: &str) {
    let before = work.record().await;
    assert_eq!(work.renew(owner).await, Renewal::Lost, "renewed by {who}");
    work.unchanged(&before, "a refused renewal changes nothing").await;
}

/// The owner's renewal runs the lease anew and moves nothing else.
pub async fn the_owner_renews(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    let before = work.record().await;
    time.pass(LEASE).await;
    assert_eq!(work.renew(owner).await, Renewal::Extended, "the owner could not renew");
    let after = work.record().await;
    assert!(after.lease_until > before.lease_until, "a renewed lease ends later");
    assert!(after.expires_at > before.expires_at, "the expiry moves with the lease");
    let same = semel_core::Record {
        lease_until: before.lease_until,
        expires_at: before.expires_at,
        ..after
    };
    assert_eq!(same, before, "a renewal moves the lease and nothing else");
}

/// A renewed lease holds others off when the first would have been over.
pub async fn a_renewed_lease_holds_others_off(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let owner = work.lapsed(time).await;
    assert_eq!(work.renew(owner).await, Renewal::Extended, "lapsed, but nobody took over");
    let Claim::Busy { remaining } = work.claim().await else {
        panic!("a renewed lease did not hold a contender off");
    };
    assert!(remaining <= LEASE, "a renewal is for the owner's own lease");
}

/// A renewal does not count for ever: the lease lapses again.
pub async fn a_renewed_lease_lapses_again(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let owner = work.owned().await;
    work.renew(owner).await;
    time.pass(LEASE).await;
    assert!(work.granted().await.takeover, "a renewed lease did not lapse");
}

/// The token alone does not renew.
pub async fn another_nonce_cannot_renew(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    refused(&work, other_nonce(owner), "another nonce").await;
}

/// The nonce alone does not renew.
pub async fn another_token_cannot_renew(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    refused(&work, other_token(owner), "another token").await;
}

/// A lease is not renewed once it has run for `max_run`.
pub async fn nobody_renews_beyond_max_run(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    assert_eq!(work.renew_within(owner, Duration::ZERO).await, Renewal::Lost, "no run at all");
    time.pass(LEASE).await;
    let before = work.record().await;
    assert_eq!(work.renew_within(owner, LEASE).await, Renewal::Lost, "renewed beyond max_run");
    work.unchanged(&before, "a refused renewal changes nothing").await;
    assert_eq!(work.renew_within(owner, LONG).await, Renewal::Extended, "within max_run");
}

/// `max_run` counts from the claim, not from the last renewal.
pub async fn a_renewal_does_not_restart_max_run(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    time.pass(LEASE).await;
    assert_eq!(work.renew(owner).await, Renewal::Extended, "within max_run");
    assert_eq!(work.renew_within(owner, LEASE).await, Renewal::Lost, "max_run began anew");
}

/// Who was taken over cannot renew.
pub async fn a_stale_owner_cannot_renew(store: &dyn Store, time: &dyn Time) {
    let work = Work::new(store).lease(LEASE);
    let stale = work.lapsed(time).await;
    work.clone().lease(LONG).owned().await;
    refused(&work, stale, "an owner who was taken over").await;
}

/// Who abandoned a key cannot renew it, and does not block whoever takes over.
pub async fn an_abandoned_lease_cannot_be_renewed(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let owner = work.owned().await;
    work.abandon(owner, LONG).await;
    refused(&work, owner, "an owner who gave up").await;
}

/// A key that is done, given back or unknown is not renewed.
pub async fn only_work_in_progress_is_renewed(store: &dyn Store, _: &dyn Time) {
    let [done, open, unknown] = [Work::new(store), Work::new(store), Work::new(store).hold()];
    let owner = done.completed(&said("done")).await;
    refused(&done, owner, "an owner who is done").await;
    let owner = open.released(Effect::None).await;
    refused(&open, owner, "an owner who gave the key back").await;
    let owner = unknown.unknown().await;
    refused(&unknown, owner, "the owner of an unknown key").await;
}

/// Renewing a key that has no record is refused and makes none.
pub async fn a_renewal_makes_no_record(store: &dyn Store, _: &dyn Time) {
    let work = Work::new(store);
    let stranger = Owner { key: work.key, nonce: work.request().nonce, token: 1 };
    assert_eq!(work.renew(stranger).await, Renewal::Lost, "nothing was renewed");
    assert_eq!(work.get().await, None, "a renewal made a record");
}
