//! Renewal: leases are added and removed while the renewal task sleeps, reads its schedule and calls the store.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use shuttle::{
    future::spawn,
    rand::{Rng, thread_rng},
};

use super::{LEASE, YieldingStore, engine, fingerprint};
use crate::{
    Claim, ClaimRequest, KeyHash, Lease, Nonce, Policy, Store,
    engine::{EngineInner, lease_lost::LeaseLost, renewal::LeaseRenewal},
    sync::{
        Instant, TimeAdvances, assert_bug_found, explore,
        planted_bugs::ScheduleBug,
        time::{sleep, timers},
    },
};

const MAX_RUN: Duration = Duration::from_secs(600);

/// Claims key `n` and renews its lease.
async fn owner(
    inner: &Arc<EngineInner>,
    store: &YieldingStore,
    n: u8,
    lease: Duration,
) -> (Lease, LeaseRenewal, LeaseLost) {
    let request = ClaimRequest {
        key: KeyHash::from_bytes([n; 32]),
        fingerprint: fingerprint(),
        nonce: Nonce::random(),
        terms: Policy::api().lease(lease).terms(),
        labels: None,
    };
    let sent = Instant::now();
    let Ok(Claim::Granted(lease)) = store.claim(&request).await else { panic!("the key is new") };
    let lost = LeaseLost::default();
    let renewal = LeaseRenewal::new(inner.clone(), &lease, sent, MAX_RUN, lost.clone());
    (lease, renewal, lost)
}

async fn is_owned(store: &YieldingStore, lease: &Lease) -> bool {
    let sighting = store.records.get(&lease.owner.key).await.expect("memory").expect("claimed");
    let record = sighting.record;
    record.nonce == Some(lease.owner.nonce) && record.is_leased(sighting.at)
}

/// Sleeps for a random time, `most` at most.
async fn a_while(most: Duration) {
    sleep(most.mul_f64(f64::from(thread_rng().gen_range(0..8u8)) / 7.0)).await;
}

async fn leases_of_two_lengths() {
    let store = YieldingStore::new();
    let engine = engine(&store);
    let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
        let (inner, store) = (engine.inner.clone(), store.clone());
        spawn(async move {
            a_while(length).await;
            let (lease, _renewal, lost) = owner(&inner, &store, n, length).await;
            for _ in 0..4 {
                sleep(length / 2).await;
                assert!(is_owned(&store, &lease).await, "a lease was not renewed in time");
                assert!(!lost.has_fired(), "nothing was lost");
            }
        })
    });
    for owner in join_all(owners).await {
        owner.expect("the owner ends by itself");
    }
}

#[test]
fn every_lease_is_renewed_in_time_whatever_its_length_and_whenever_it_is_added() {
    explore(TimeAdvances::WhenIdle, leases_of_two_lengths);
}

#[test]
fn a_renewal_task_that_is_not_woken_for_a_short_lease_is_found() {
    let message = "a lease was not renewed in time";
    assert_bug_found(
        ScheduleBug::RenewalTaskNotWoken,
        TimeAdvances::WhenIdle,
        message,
        leases_of_two_lengths,
    );
}

#[test]
fn an_owner_whose_record_was_erased_gets_the_signal_within_a_third_of_its_lease() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let engine = engine(&store);
        let owners = [1, 2].map(|n| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (lease, _renewal, lost) = owner(&inner, &store, n, LEASE).await;
                a_while(LEASE * 2).await;
                store.erase(&lease.owner.key).await.expect("memory");
                let erased = Instant::now();
                lost.fired().await;
                assert!(
                    erased.elapsed() <= LEASE / 3,
                    "the signal came late: {:?}",
                    erased.elapsed()
                );
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
    });
}

#[test]
fn an_owner_gets_the_signal_however_long_any_step_takes() {
    explore(TimeAdvances::AtAnyTime, || async {
        let store = YieldingStore::new();
        let engine = engine(&store);
        let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (lease, _renewal, lost) = owner(&inner, &store, n, length).await;
                store.erase(&lease.owner.key).await.expect("memory");
                lost.fired().await;
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
    });
}

#[test]
fn an_owner_whose_store_does_not_reply_gets_the_signal_at_four_fifths() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new().slow("renew_many", Duration::MAX);
        let engine = engine(&store);
        let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                a_while(LEASE).await;
                let claimed = Instant::now();
                let (_, _renewal, lost) = owner(&inner, &store, n, length).await;
                lost.fired().await;
                assert_eq!(claimed.elapsed(), length * 4 / 5);
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
    });
}

#[test]
fn a_lease_is_not_renewed_once_its_handle_is_dropped() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let engine = engine(&store);
        let owners = [1, 2].map(|n| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (_, renewal, _) = owner(&inner, &store, n, LEASE).await;
                a_while(LEASE).await;
                drop(renewal);
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
        let gone = Instant::now();
        sleep(LEASE * 10).await;
        let late = store.calls("renew_many").into_iter().filter(|at| *at > gone).count();
        assert_eq!(late, 0);
    });
}

#[test]
fn the_engines_tasks_end_with_the_engine() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let engine = engine(&store);
        let (_, renewal, _) = owner(&engine.inner, &store, 1, LEASE).await;
        let working = spawn(async move {
            a_while(LEASE).await;
            drop(renewal);
        });
        let dropping = spawn(async move { drop(engine) });
        working.await.expect("the work ends by itself");
        dropping.await.expect("ends by itself");
        sleep(crate::EngineBuilder::CLEANUP_EVERY * 2).await;
        assert_eq!(timers(), 0, "a task of a dropped engine still sleeps");
    });
}
