//! Tests of the memory store's bounds and of expiry.

use std::{sync::Arc, time::Duration};

use super::{MemoryStore, WhenFull};
use crate::{
    Body, Claim, ClaimRequest, CompleteRequest, Effect, Erasure, ErrorKind, Fingerprint, KeyHash,
    Lease, ListQuery, ManualClock, Nonce, OnLostOwner, Outcome, Owner, Record, ReleaseRequest,
    State, Store, Terms,
};

const RETENTION: Duration = Duration::from_secs(60);

fn request(id: u32) -> ClaimRequest {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&id.to_be_bytes());
    key[0] = id.to_le_bytes()[0]; // Spread over the shards.
    ClaimRequest {
        key: KeyHash::from_bytes(key),
        fingerprint: Fingerprint::of_bytes(b"x"),
        nonce: Nonce::random(),
        terms: Terms {
            lease: Duration::from_secs(1).into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: RETENTION.into(),
            failure_retention: RETENTION.into(),
        },
        labels: None,
    }
}

async fn claimed(store: &MemoryStore, id: u32) -> Lease {
    match store.claim(&request(id)).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn completed(store: &MemoryStore, id: u32, body: usize) {
    let owner = claimed(store, id).await.owner;
    let outcome = Arc::new(Outcome::success(vec![7; body]));
    store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
}

fn bounded(clock: &ManualClock, entries: usize, when_full: WhenFull) -> MemoryStore {
    let builder = MemoryStore::builder().max_entries(entries).clock(clock.clone());
    builder.when_full(when_full).build().unwrap()
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_serves_old_ones() {
    let store = bounded(&ManualClock::new(), 10, WhenFull::Refuse);
    for id in 0..10 {
        completed(&store, id, 10).await;
    }
    let error = store.claim(&request(99)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(matches!(store.claim(&request(3)).await.unwrap(), Claim::Replay(_)));
    assert_eq!(store.stats().await.unwrap().records, 10);
}

#[tokio::test]
async fn a_full_store_deletes_expired_records_for_a_new_one() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 10, WhenFull::Refuse);
    for id in 0..10 {
        completed(&store, id, 10).await;
    }
    clock.advance(RETENTION);
    completed(&store, 99, 10).await;
    assert_eq!(store.stats().await.unwrap().records, 1);
}

#[tokio::test]
async fn eviction_is_a_choice_and_never_touches_an_owned_key() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 4, WhenFull::EvictCompleted);
    claimed(&store, 0).await;
    claimed(&store, 1).await;
    completed(&store, 2, 10).await;
    completed(&store, 3, 10).await;
    for id in 4..50 {
        completed(&store, id, 10).await;
    }
    for id in 0..2 {
        let seen = store.get(&request(id).key).await.unwrap().unwrap();
        assert_eq!(seen.record.state, State::InProgress);
    }
    assert!(store.stats().await.unwrap().records <= 4);

    let owned = bounded(&clock, 2, WhenFull::EvictCompleted);
    claimed(&owned, 0).await;
    claimed(&owned, 1).await;
    assert_eq!(owned.claim(&request(2)).await.unwrap_err().kind(), ErrorKind::Full);
}

#[tokio::test]
async fn bytes_are_bounded_and_an_outcome_that_does_not_fit_loses_its_body() {
    let max = 64 * 1024;
    let store = MemoryStore::builder().max_bytes(max).build().unwrap();
    let leases = [claimed(&store, 0).await, claimed(&store, 1).await];
    for lease in leases {
        let outcome = Arc::new(Outcome::success(vec![7; 40_000]));
        store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    }
    assert!(store.bytes() <= max, "{} bytes", store.bytes());
    let body = async |id| {
        let seen = store.get(&request(id).key).await.unwrap().unwrap();
        seen.record.outcome.unwrap().body().clone()
    };
    assert!(matches!(body(0).await, Body::Kept(_)));
    assert_eq!(body(1).await, Body::Omitted { length: 40_000 });
}

#[tokio::test]
async fn deleted_records_return_their_bytes() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 1000, WhenFull::Refuse);
    for id in 0..500 {
        completed(&store, id, 100).await;
    }
    store.erase(&request(1).key).await.unwrap();
    store.forget(&request(2).key).await.unwrap();
    clock.advance(RETENTION);
    let purged = store.purge(10_000).await.unwrap();
    assert_eq!(purged.deleted, 499);
    assert_eq!((store.bytes(), store.stats().await.unwrap().records), (0, 0));
}

#[tokio::test]
async fn purge_stops_at_its_limit_and_goes_on_from_there() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 1000, WhenFull::Refuse);
    for id in 0..700 {
        completed(&store, id, 10).await;
    }
    clock.advance(RETENTION);
    assert_eq!(store.purge(600).await.unwrap().deleted, 600);
    assert_eq!(store.purge(600).await.unwrap().deleted, 100);
    assert_eq!(store.purge(0).await.unwrap().deleted, 0);
}

#[tokio::test]
async fn a_record_whose_expiry_moved_is_purged_when_it_is_due_and_not_before() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 10, WhenFull::Refuse);
    let lease = claimed(&store, 0).await;
    // Its work still runs when the queue first checks it.
    clock.advance(RETENTION);
    assert_eq!(store.purge(10).await.unwrap().count(), 0);
    let outcome = Arc::new(Outcome::success("late"));
    store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
    clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(store.purge(10).await.unwrap().count(), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(store.purge(10).await.unwrap().deleted, 1);
}

/// The sum of the sizes of all records.
async fn bytes_of_records(store: &MemoryStore) -> usize {
    let all = ListQuery { limit: usize::MAX, ..ListQuery::default() };
    store.list(&all).await.unwrap().iter().map(Record::size).sum()
}

#[tokio::test]
async fn the_byte_bound_holds_however_often_the_store_is_filled() {
    let (clock, max) = (ManualClock::new(), 64 * 1024);
    let store = MemoryStore::builder().max_bytes(max).clock(clock.clone()).build().unwrap();
    let mut admitted = Vec::new();
    for round in 0..6u32 {
        let mut leases = Vec::new();
        for id in 0..10_000 {
            match store.claim(&request(round * 10_000 + id)).await {
                Ok(Claim::Granted(lease)) => leases.push(lease),
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full);
                    break;
                }
            }
        }
        for lease in &leases {
            let outcome = Arc::new(Outcome::failure("k".repeat(300), "m".repeat(300)));
            store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
            assert!(bytes_of_records(&store).await <= max);
        }
        admitted.push(leases.len());
        clock.advance(RETENTION);
        store.purge(usize::MAX).await.unwrap();
        assert_eq!((store.bytes(), store.entries()), (0, 0));
    }
    assert!(admitted.iter().all(|count| *count == admitted[0]), "{admitted:?}");
}

#[tokio::test]
async fn eviction_goes_on_until_a_new_record_fits() {
    let builder = MemoryStore::builder().max_bytes(64 * 1024).when_full(WhenFull::EvictCompleted);
    let store = builder.build().unwrap();
    for id in 0..2000 {
        completed(&store, id, usize::try_from(id).unwrap() % 3000).await;
    }
    assert!(bytes_of_records(&store).await <= 64 * 1024);
}

#[tokio::test]
async fn forgotten_records_leave_no_queue_entries() {
    let store = bounded(&ManualClock::new(), 10, WhenFull::Refuse);
    for id in 0..5000 {
        completed(&store, id, 10).await;
        store.forget(&request(id).key).await.unwrap();
    }
    let queued: usize = store.queued();
    assert!(queued <= 128 * 65, "{queued} outdated entries are queued");
    assert_eq!(store.bytes(), 0);
}

#[tokio::test]
async fn expired_records_are_deleted_before_an_outcome_loses_its_body() {
    for when_full in [WhenFull::Refuse, WhenFull::EvictCompleted] {
        let clock = ManualClock::new();
        let builder = MemoryStore::builder().max_bytes(64 * 1024).when_full(when_full);
        let store = builder.clock(clock.clone()).build().unwrap();
        for id in 0..40 {
            completed(&store, id, 1000).await;
        }
        let owner = claimed(&store, 99).await.owner;
        if when_full == WhenFull::Refuse {
            clock.advance(RETENTION);
        }
        let outcome = Arc::new(Outcome::success(vec![7; 20_000]));
        store.complete(&CompleteRequest { owner, outcome: outcome.clone() }).await.unwrap();
        let seen = store.get(&owner.key).await.unwrap().unwrap();
        assert_eq!(seen.record.outcome, Some(outcome), "{when_full:?}");
    }
}

#[tokio::test]
async fn an_operator_can_always_erase() {
    let store = MemoryStore::builder().max_bytes(64 * 1024).build().unwrap();
    let mut id = 0;
    while store.claim(&request(id)).await.is_ok() {
        let Ok(Some(seen)) = store.get(&request(id).key).await else { panic!("just claimed") };
        let (nonce, token) = (seen.record.nonce.unwrap(), seen.record.token);
        let owner = Owner { key: seen.record.key, nonce, token };
        let outcome = Arc::new(Outcome::success("x"));
        store.complete(&CompleteRequest { owner, outcome }).await.unwrap();
        id += 1;
    }
    for id in 0..id {
        assert_eq!(store.erase(&request(id).key).await.unwrap(), Erasure::Erased);
    }
}

#[tokio::test]
async fn eviction_finds_completed_records_behind_any_number_of_others() {
    let store = bounded(&ManualClock::new(), 20_000, WhenFull::EvictCompleted);
    for id in 0..18_000 {
        let owner = claimed(&store, id).await.owner;
        let release = ReleaseRequest { owner, effect: Effect::Possible };
        store.release(&release).await.unwrap();
    }
    for id in 18_000..20_100 {
        completed(&store, id, 1).await;
    }
}

#[tokio::test]
async fn purged_failures_leave_no_queue_entries() {
    let clock = ManualClock::new();
    let store = bounded(&clock, 1000, WhenFull::Refuse);
    for round in 0..50u32 {
        for id in 0..400 {
            let mut request = request(round * 400 + id);
            request.terms.failure_retention = Duration::from_secs(1).into();
            let Claim::Granted(lease) = store.claim(&request).await.unwrap() else {
                panic!("taken")
            };
            let outcome = Arc::new(Outcome::failure("no", "never"));
            store.complete(&CompleteRequest { owner: lease.owner, outcome }).await.unwrap();
        }
        clock.advance(Duration::from_secs(1));
        store.purge(usize::MAX).await.unwrap();
    }
    assert!(store.queued() <= 128 * 65, "{} outdated entries are queued", store.queued());
}

#[test]
fn bounds_that_hold_nothing_are_refused_by_name() {
    let error = MemoryStore::builder().max_entries(0).build().unwrap_err();
    assert!(error.to_string().contains("max_entries"), "{error}");
    let error = MemoryStore::builder().max_bytes(1).build().unwrap_err();
    assert!(error.to_string().contains("max_bytes"), "{error}");
}
