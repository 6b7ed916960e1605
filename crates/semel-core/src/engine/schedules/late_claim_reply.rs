//! Replies to a claim that come when the caller gives up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use super::{LEASE, YieldingStore, engine, fingerprint, key, policy};
use crate::{
    RunError, State, Store, WorkError,
    background::READ_GRACE,
    engine::settle::MIN_PATIENCE,
    sync::{
        Instant, TimeAdvances, assert_bug_found, explore, planted_bugs::ScheduleBug, time::sleep,
    },
};

/// The reply to a claim comes at the same moment as the caller's timeout.
async fn a_reply_at_the_moment_of_the_timeout() {
    let store = YieldingStore::new().slow("claim", MIN_PATIENCE + READ_GRACE);
    let engine = engine(&store).with_policy(policy().wait(MIN_PATIENCE)).expect("valid");
    let runs = Arc::new(AtomicU32::new(0));
    let work = {
        let runs = runs.clone();
        async move |_| {
            runs.fetch_add(1, SeqCst);
            Ok::<_, WorkError>(1)
        }
    };
    let answer = engine.run::<u32, _, _, _>(key(), fingerprint(), work).await;
    match answer {
        Ok(_) => assert_eq!(runs.load(SeqCst), 1),
        Err(RunError::Store(_)) => {
            assert_eq!(runs.load(SeqCst), 0, "the error says that no work ran")
        }
        Err(RunError::Busy { .. }) => {}
        Err(other) => panic!("{other:?}"),
    }
    sleep(LEASE / 3).await;
    let sighting = store.records.get(&engine.key_hash(&key())).await.expect("memory");
    let state = sighting.map(|sighting| sighting.record.state);
    assert_ne!(state, Some(State::InProgress), "an unused grant is given back");
}

/// Each lease is almost over when the store's reply arrives.
async fn a_claim_that_takes_as_long_as_its_lease() {
    const SHORT: Duration = Duration::from_millis(100);
    let store = YieldingStore::new().slow("claim", SHORT);
    let policy = policy().lease(SHORT).wait(MIN_PATIENCE);
    let engine = engine(&store).with_policy(policy).expect("valid");
    let work = async |_| Ok::<_, WorkError>(1);
    let began = Instant::now();
    let answer = engine.run::<u32, _, _, _>(key(), fingerprint(), work).await;
    assert!(matches!(answer, Err(RunError::Store(_) | RunError::Busy { .. })), "{answer:?}");
    assert!(began.elapsed() < MIN_PATIENCE * 2, "{:?}", began.elapsed());
    sleep(LEASE).await;
    let last_claim = store.calls("claim").into_iter().max().expect("a claim was sent");
    let after = last_claim.saturating_duration_since(began);
    assert!(after < MIN_PATIENCE * 2, "claims go on for ever: {after:?}");
}

#[test]
fn a_claim_is_not_repeated_for_ever_if_the_store_is_too_slow_for_its_lease() {
    explore(TimeAdvances::WhenIdle, a_claim_that_takes_as_long_as_its_lease);
}

#[test]
fn a_grant_at_the_moment_of_the_timeout_is_used_or_given_back() {
    explore(TimeAdvances::WhenIdle, a_reply_at_the_moment_of_the_timeout);
}

#[test]
fn a_late_reply_that_is_dropped_is_found() {
    let message = "an unused grant is given back";
    assert_bug_found(
        ScheduleBug::LateReplyDropped,
        TimeAdvances::WhenIdle,
        message,
        a_reply_at_the_moment_of_the_timeout,
    );
}
