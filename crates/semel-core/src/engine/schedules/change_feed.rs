//! News from a store wakes who waits for another process.

use std::time::Duration;

use shuttle::future::spawn;

use super::{Remote, asked, engine, key, trip};
use crate::{
    ChangeFeed, Engine, RunError, WorkError,
    sync::{Instant, Pace, caught, explore, planted_bugs::Bug, time::sleep},
};

/// No poll comes sooner than this, and time passes only when everybody waits.
const BEFORE_ANY_POLL: Duration = Duration::from_millis(12);

/// Longer than many polls take, or over at once.
fn work_takes(patient: bool) -> Duration {
    Duration::from_millis(if patient { 5000 } else { 0 })
}

async fn run(engine: Engine, takes: Duration) -> Result<Instant, RunError> {
    let work = async move |_| {
        sleep(takes).await;
        trip().await;
        Ok::<_, WorkError>(1)
    };
    engine.run(key(), asked(), work).await.map(|_: crate::Answer<u32>| Instant::now())
}

async fn two_processes_and_one_key(patient: bool) {
    let store = Remote { feed: Some(ChangeFeed::new()), ..Remote::new() };
    let calls = [(); 2].map(|()| spawn(run(engine(&store), work_takes(patient))));
    for call in calls {
        let answered = call.await.expect("the caller ends by itself").expect("answered");
        let [completed] = store.calls("completed")[..] else { panic!("one run is recorded") };
        let after = answered.saturating_duration_since(completed);
        assert!(after < BEFORE_ANY_POLL, "woken by a poll, {after:?} after the completion");
    }
}

#[test]
fn news_wakes_whoever_waits_for_another_process() {
    for patient in [true, false] {
        explore(Pace::WhenIdle, move || two_processes_and_one_key(patient));
    }
}

#[test]
fn who_listens_too_late_and_does_not_look_is_caught() {
    let story = || two_processes_and_one_key(false);
    caught(Bug::NoLookAfterListening, Pace::WhenIdle, "woken by a poll", story);
}
