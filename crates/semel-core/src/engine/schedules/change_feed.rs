//! The change feed wakes a waiter whose key another process owns.

use std::time::Duration;

use shuttle::future::spawn;

use super::{YieldingStore, engine, fingerprint, key, maybe_yield};
use crate::{
    ChangeFeed, Engine, RunError, WorkError,
    sync::{
        Instant, TimeAdvances, assert_bug_found, explore, planted_bugs::ScheduleBug, time::sleep,
    },
};

/// No poll comes sooner than this, since virtual time advances only when all tasks wait.
const BEFORE_ANY_POLL: Duration = Duration::from_millis(12);

/// Longer than many polls, or no time at all.
fn work_takes(is_long: bool) -> Duration {
    Duration::from_millis(if is_long { 5000 } else { 0 })
}

async fn run(engine: Engine, takes: Duration) -> Result<Instant, RunError> {
    let work = async move |_| {
        sleep(takes).await;
        maybe_yield().await;
        Ok::<_, WorkError>(1)
    };
    engine.run(key(), fingerprint(), work).await.map(|_: crate::Answer<u32>| Instant::now())
}

async fn two_processes_and_one_key(is_long: bool) {
    let store = YieldingStore { feed: Some(ChangeFeed::new()), ..YieldingStore::new() };
    let calls = [(); 2].map(|()| spawn(run(engine(&store), work_takes(is_long))));
    for call in calls {
        let answered = call.await.expect("the caller ends by itself").expect("answered");
        let [completed] = store.calls("completed")[..] else { panic!("one run is recorded") };
        let after = answered.saturating_duration_since(completed);
        assert!(after < BEFORE_ANY_POLL, "woken by a poll, {after:?} after the completion");
    }
}

#[test]
fn the_change_feed_wakes_a_waiter_of_another_process() {
    for is_long in [true, false] {
        explore(TimeAdvances::WhenIdle, move || two_processes_and_one_key(is_long));
    }
}

#[test]
fn a_subscriber_that_does_not_read_the_record_at_once_is_found() {
    let scenario = || two_processes_and_one_key(false);
    assert_bug_found(
        ScheduleBug::NoReadAfterSubscribing,
        TimeAdvances::WhenIdle,
        "woken by a poll",
        scenario,
    );
}
