//! Answers of the store that come as the caller gives up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use super::{LEASE, Remote, asked, engine, key, policy};
use crate::{
    RunError, State, Store, WorkError,
    background::UNREAD,
    engine::settle::MIN_PATIENCE,
    sync::{Instant, Pace, caught, explore, planted_bugs::Bug, time::sleep},
};

/// A claim that is answered in the very moment in which the caller's patience ends.
async fn a_claim_answered_in_the_last_moment() {
    let store = Remote::new().slow("claim", MIN_PATIENCE + UNREAD);
    let engine = engine(&store).with_policy(policy().wait(MIN_PATIENCE)).expect("valid");
    let runs = Arc::new(AtomicU32::new(0));
    let work = {
        let runs = runs.clone();
        async move |_| {
            runs.fetch_add(1, SeqCst);
            Ok::<_, WorkError>(1)
        }
    };
    let answer = engine.run::<u32, _, _, _>(key(), asked(), work).await;
    match answer {
        Ok(_) => assert_eq!(runs.load(SeqCst), 1),
        Err(RunError::Store(_)) => assert_eq!(runs.load(SeqCst), 0, "told that nothing ran"),
        Err(RunError::Busy { .. }) => {}
        Err(other) => panic!("{other:?}"),
    }
    sleep(LEASE / 3).await;
    let seen = store.records.get(&engine.key_hash(&key())).await.expect("memory");
    let state = seen.map(|seen| seen.record.state);
    assert_ne!(state, Some(State::InProgress), "a grant that nobody uses is given back");
}

/// A lease that is as good as over whenever the store has granted it.
async fn a_claim_that_takes_as_long_as_its_lease() {
    const SHORT: Duration = Duration::from_millis(100);
    let store = Remote::new().slow("claim", SHORT);
    let policy = policy().lease(SHORT).wait(MIN_PATIENCE);
    let engine = engine(&store).with_policy(policy).expect("valid");
    let work = async |_| Ok::<_, WorkError>(1);
    let began = Instant::now();
    let answer = engine.run::<u32, _, _, _>(key(), asked(), work).await;
    assert!(matches!(answer, Err(RunError::Store(_) | RunError::Busy { .. })), "{answer:?}");
    assert!(began.elapsed() < MIN_PATIENCE * 2, "{:?}", began.elapsed());
    sleep(LEASE).await;
    let asked_last = store.calls("claim").into_iter().max().expect("it was asked");
    assert!(asked_last.saturating_duration_since(began) < MIN_PATIENCE * 2, "it asks for ever");
}

#[test]
fn a_store_that_is_too_slow_for_a_lease_is_not_asked_for_ever() {
    explore(Pace::WhenIdle, a_claim_that_takes_as_long_as_its_lease);
}

#[test]
fn a_grant_that_comes_as_the_caller_gives_up_is_used_or_given_back() {
    explore(Pace::WhenIdle, a_claim_answered_in_the_last_moment);
}

#[test]
fn an_answer_that_is_dropped_as_the_caller_gives_up_is_caught() {
    let says = "a grant that nobody uses is given back";
    caught(Bug::LateAnswerDropped, Pace::WhenIdle, says, a_claim_answered_in_the_last_moment);
}
