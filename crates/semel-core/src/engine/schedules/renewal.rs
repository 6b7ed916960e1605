//! Renewal: owners come and go while the task sleeps, looks and asks.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use shuttle::{
    future::spawn,
    rand::{Rng, thread_rng},
};

use super::{LEASE, Remote, asked, engine};
use crate::{
    Claim, ClaimRequest, KeyHash, Lease, Nonce, Policy, Store,
    engine::{Inner, lease_lost::Lost, renewal::Keeper},
    sync::{
        Instant, Pace, caught, explore,
        planted_bugs::Bug,
        time::{sleep, timers},
    },
};

const MAX_RUN: Duration = Duration::from_secs(600);

/// Claims a key of its own and keeps it renewed.
async fn owner(
    inner: &Arc<Inner>,
    store: &Remote,
    n: u8,
    lease: Duration,
) -> (Lease, Keeper, Lost) {
    let request = ClaimRequest {
        key: KeyHash::from_bytes([n; 32]),
        fingerprint: asked(),
        nonce: Nonce::random(),
        terms: Policy::api().lease(lease).terms(),
        labels: None,
    };
    let sent = Instant::now();
    let Ok(Claim::Granted(lease)) = store.claim(&request).await else { panic!("the key is new") };
    let lost = Lost::default();
    let keeper = Keeper::new(inner.clone(), &lease, sent, MAX_RUN, lost.clone());
    (lease, keeper, lost)
}

async fn is_owned(store: &Remote, lease: &Lease) -> bool {
    let seen = store.records.get(&lease.owner.key).await.expect("memory").expect("claimed");
    seen.record.nonce == Some(lease.owner.nonce) && seen.record.is_leased(seen.at)
}

/// Some moment between now and `most`.
async fn a_while(most: Duration) {
    sleep(most.mul_f64(f64::from(thread_rng().gen_range(0..8u8)) / 7.0)).await;
}

async fn leases_of_two_lengths() {
    let store = Remote::new();
    let engine = engine(&store);
    let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
        let (inner, store) = (engine.inner.clone(), store.clone());
        spawn(async move {
            a_while(length).await;
            let (lease, _keeper, lost) = owner(&inner, &store, n, length).await;
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
fn every_lease_is_renewed_in_time_whatever_its_length_and_whenever_it_comes() {
    explore(Pace::WhenIdle, leases_of_two_lengths);
}

#[test]
fn a_renewal_that_nobody_wakes_up_for_is_caught() {
    let says = "a lease was not renewed in time";
    caught(Bug::RenewalNotWoken, Pace::WhenIdle, says, leases_of_two_lengths);
}

#[test]
fn an_owner_whose_lease_the_store_took_away_is_told_within_a_third_of_it() {
    explore(Pace::WhenIdle, || async {
        let store = Remote::new();
        let engine = engine(&store);
        let owners = [1, 2].map(|n| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (lease, _keeper, lost) = owner(&inner, &store, n, LEASE).await;
                a_while(LEASE * 2).await;
                store.erase(&lease.owner.key).await.expect("memory");
                let taken = Instant::now();
                lost.fired().await;
                assert!(taken.elapsed() <= LEASE / 3, "told late: {:?}", taken.elapsed());
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
    });
}

#[test]
fn an_owner_is_told_however_long_anything_takes() {
    explore(Pace::AtAnyTime, || async {
        let store = Remote::new();
        let engine = engine(&store);
        let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (lease, _keeper, lost) = owner(&inner, &store, n, length).await;
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
fn an_owner_that_the_store_does_not_answer_is_told_at_four_fifths() {
    explore(Pace::WhenIdle, || async {
        let store = Remote::new().slow("renew_many", Duration::MAX);
        let engine = engine(&store);
        let owners = [(1, LEASE), (2, LEASE / 10)].map(|(n, length)| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                a_while(LEASE).await;
                let asked = Instant::now();
                let (_, _keeper, lost) = owner(&inner, &store, n, length).await;
                lost.fired().await;
                assert_eq!(asked.elapsed(), length * 4 / 5);
            })
        });
        for owner in join_all(owners).await {
            owner.expect("the owner ends by itself");
        }
    });
}

#[test]
fn a_lease_is_not_renewed_once_its_keeper_is_gone() {
    explore(Pace::WhenIdle, || async {
        let store = Remote::new();
        let engine = engine(&store);
        let owners = [1, 2].map(|n| {
            let (inner, store) = (engine.inner.clone(), store.clone());
            spawn(async move {
                let (_, keeper, _) = owner(&inner, &store, n, LEASE).await;
                a_while(LEASE).await;
                drop(keeper);
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
    explore(Pace::WhenIdle, || async {
        let store = Remote::new();
        let engine = engine(&store);
        let (_, keeper, _) = owner(&engine.inner, &store, 1, LEASE).await;
        let working = spawn(async move {
            a_while(LEASE).await;
            drop(keeper);
        });
        let dropping = spawn(async move { drop(engine) });
        working.await.expect("the work ends by itself");
        dropping.await.expect("ends by itself");
        sleep(crate::EngineBuilder::CLEANUP_EVERY * 2).await;
        assert_eq!(timers(), 0, "a task of a dropped engine sleeps on");
    });
}
