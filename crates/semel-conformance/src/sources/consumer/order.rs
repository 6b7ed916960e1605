//! Order within an ordering key, with many handlers, and with events that are tried again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use semel_consumer::Order;
use semel_core::WorkError;
use tokio::sync::Barrier;

use super::{Run, Step, World, runs::succeeds};
use crate::sources::promises::Fixture;

pub(in crate::sources) async fn a_key_runs_in_order(fixture: Fixture) {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    const EACH: usize = 8;
    let world = World::new(fixture);
    for number in 0..EACH {
        for key in KEYS {
            world.publish_with_key(&format!("{key}{number}"), key).await;
        }
    }
    // The first events of all keys wait for each other: they run at the same time.
    let first = Arc::new(Barrier::new(KEYS.len()));
    let process = world.start_with(
        |builder| builder.max_in_flight(KEYS.len() * EACH),
        move |run: Run| {
            let first = first.clone();
            async move {
                if run.id.ends_with('0') {
                    first.wait().await;
                }
                succeeds(run).await
            }
        },
    );
    let process = process.await;
    world.until_settled(KEYS.len() * EACH).await;
    world.stop(process).await;
    for key in KEYS {
        let wanted: Vec<_> = (0..EACH)
            .flat_map(|number| [format!("{key}{number} ran"), format!("{key}{number} ended")])
            .collect();
        assert_eq!(
            runs_of(&world, key),
            wanted,
            "events of one key run one at a time and in order"
        );
    }
}

pub(in crate::sources) async fn a_retry_holds_its_key(fixture: Fixture) {
    let world = World::new(fixture);
    for (id, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        world.publish_with_key(id, key).await;
    }
    let process = world.start(|run: Run| async move {
        match (&*run.id, run.attempt) {
            ("a1", 1 | 2) => Err(WorkError::retry("the suite fails this attempt")),
            _ => succeeds(run).await,
        }
    });
    let process = process.await;
    world.until_settled(4).await;
    world.stop(process).await;
    let wanted = [
        "a1 ran",
        "a1 failed",
        "a1 ran",
        "a1 failed",
        "a1 ran",
        "a1 ended",
        "a2 ran",
        "a2 ended",
        "a3 ran",
        "a3 ended",
    ];
    assert_eq!(
        runs_of(&world, "a"),
        wanted,
        "later events of a key wait for one that is tried again"
    );
}

pub(in crate::sources) async fn with_relaxed_order_others_pass(fixture: Fixture) {
    let world = World::new(fixture);
    for id in ["a1", "a2"] {
        world.publish_with_key(id, "a").await;
    }
    let has_passed = Arc::new(AtomicBool::new(false));
    let process = world.start_with(
        |builder| builder.order(Order::Relaxed).max_attempts(1000),
        move |run: Run| {
            let has_passed = has_passed.clone();
            async move {
                if &*run.id == "a1" && !has_passed.load(SeqCst) {
                    return Err(WorkError::retry(
                        "the suite fails until the later event has passed",
                    ));
                }
                has_passed.store(true, SeqCst);
                succeeds(run).await
            }
        },
    );
    let process = process.await;
    world.until_settled(2).await;
    world.stop(process).await;
    let ended: Vec<_> =
        runs_of(&world, "a").into_iter().filter(|step| step.ends_with("ended")).collect();
    assert_eq!(
        ended,
        ["a2 ended", "a1 ended"],
        "a later event of the key passed the one that is tried again"
    );
}

/// Starts and ends of the runs of the events with this key, in order.
fn runs_of(world: &World, key: &str) -> Vec<String> {
    let steps = world.journal.entries().into_iter().filter(|entry| entry.id.starts_with(key));
    let shown = steps.filter_map(|entry| match entry.step {
        Step::Ran { .. } => Some(format!("{} ran", entry.id)),
        Step::Ended { succeeded: true } => Some(format!("{} ended", entry.id)),
        Step::Ended { succeeded: false } => Some(format!("{} failed", entry.id)),
        _ => None,
    });
    shown.collect()
}
