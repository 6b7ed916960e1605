//! T12: a purge removes exactly the expired records, and puts keys of lost owners on hold.
//!
//! Other processes may purge the same store at the same time, so only the keys of the test are checked.

use semel_core::{Claim, Completion, Effect, State, Store};

use crate::{
    LEASE, RETENTION, Time,
    operation::{TestOperation, expect_ok, success},
};

/// Purges until nothing is left. Bounded, since other processes may make records that expire meanwhile.
pub(crate) async fn drain(store: &dyn Store) -> semel_core::Result<()> {
    for _ in 0..1_000 {
        if store.purge(1_000).await?.count() == 0 {
            break;
        }
    }
    Ok(())
}

/// A purge removes expired records, and the next claim of their key is a first one.
pub async fn purge_deletes_what_expired(store: &dyn Store, time: &dyn Time) {
    let new = || TestOperation::new(store).retention(RETENTION).failure_retention(RETENTION);
    let [done, open, dead] = [new(), new(), new().cap(1)];
    done.completed(&success("done")).await;
    open.released(Effect::Possible).await;
    dead.dead().await;
    time.pass(RETENTION).await;
    expect_ok("purge", drain(store).await);
    for operation in [done, open, dead] {
        assert_eq!(operation.get().await, None, "purged, but still there");
        assert_eq!(
            operation.granted().await.owner.token,
            1,
            "the next claim of a purged key is a first one"
        );
    }
}

/// Purge leaves everything that has not expired as it is.
pub async fn purge_leaves_the_rest(store: &dyn Store, time: &dyn Time) {
    let new = || TestOperation::new(store);
    let [live, done, open, dead] = [new(), new(), new(), new().cap(1)];
    let [lapsed, held, unknown, erased] =
        [new().lease(LEASE), new().hold(), new().hold().retention(RETENTION), new()];
    live.owned().await;
    done.completed(&success("done")).await;
    open.released(Effect::Possible).await;
    dead.dead().await;
    held.owned().await;
    unknown.unknown().await;
    erased.owned().await;
    erased.erase().await;
    lapsed.lapsed(time).await;
    time.pass(RETENTION).await;
    let operations = [live, done, open, dead, lapsed, held, unknown, erased];
    let mut before = Vec::new();
    for operation in &operations {
        before.push(operation.record().await);
    }
    expect_ok("purge", drain(store).await);
    for (operation, before) in operations.iter().zip(&before) {
        let promise = format!("purge touched a key in {:?}", before.state);
        operation.assert_unchanged(before, &promise).await;
    }
}

/// Purge turns a lost owner's key on hold into an unknown one, so that operators see it.
pub async fn purge_puts_lost_owners_on_hold(store: &dyn Store, time: &dyn Time) {
    let operation = TestOperation::new(store).lease(LEASE).hold().retention(RETENTION);
    let owner = operation.lapsed(time).await;
    expect_ok("purge", drain(store).await);
    let contested = operation.record().await;
    assert_eq!(contested.state, State::InProgress, "put on hold without a grace period");
    assert!(contested.contested, "a purge contests the lease of a lost owner");
    time.pass(contested.terms.grace_period().to_duration()).await;
    expect_ok("purge", drain(store).await);
    let record = operation.record().await;
    assert_eq!(record.state, State::Unknown, "a lost owner on hold");
    assert_eq!((record.nonce, record.token), (Some(owner.nonce), 1), "the owner is kept");
    assert_eq!((record.attempts, record.expires_at), (1, None), "no claim was granted");
    assert_eq!(operation.claim().await, Claim::Unknown, "an unknown key does not run again");
    let reply = operation.complete(owner, &success("late")).await;
    assert_eq!(reply, Completion::Recorded, "the owner came back");
}

/// A purge removes at most as many records as its limit, and none with a limit of zero.
pub async fn purge_honours_its_limit(store: &dyn Store, time: &dyn Time) {
    for _ in 0..4 {
        TestOperation::new(store).retention(RETENTION).completed(&success("done")).await;
    }
    time.pass(RETENTION).await;
    assert_eq!(expect_ok("purge", store.purge(0).await).count(), 0, "purged without leave");
    assert!(expect_ok("purge", store.purge(2).await).count() <= 2, "purged more than it may");
    assert!(expect_ok("purge", store.purge(1).await).count() <= 1, "purged more than it may");
}
