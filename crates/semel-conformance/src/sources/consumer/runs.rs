//! Events that are handled without a crash: once, in the order run, record, acknowledge.

use std::time::Duration;

use tokio::time::sleep;

use super::{Run, Step, World};
use crate::sources::promises::Fixture;

pub(in crate::sources) async fn an_event_is_handled_once(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start(succeeds).await;
    world.publish(["1", "2", "3"]).await;
    world.until_settled(3).await;
    world.stop(process).await;
    for id in ["1", "2", "3"] {
        let steps: Vec<_> = world
            .journal
            .steps(id)
            .into_iter()
            .filter(|step| !matches!(step, Step::Effect { .. }))
            .collect();
        let wanted = [
            Step::Received,
            Step::Ran { attempt: 1 },
            Step::Ended { succeeded: true },
            Step::Recorded,
            Step::Acked,
        ];
        assert_eq!(steps, wanted, "an event is acknowledged only after its outcome is recorded");
    }
}

pub(in crate::sources) async fn a_copy_of_an_event_does_not_run(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start(succeeds).await;
    world.publish(["one", "one", "one"]).await;
    world.until_settled(3).await;
    world.publish(["one"]).await;
    world.until_settled(4).await;
    world.stop(process).await;
    // A fresh process knows the event from the store only.
    let process = world.start(succeeds).await;
    world.publish(["one"]).await;
    world.until_settled(5).await;
    world.stop(process).await;
    assert_eq!(world.journal.runs("one"), 1, "a copy of an event does not run");
}

pub(in crate::sources) async fn a_lost_ack_is_no_second_run(fixture: Fixture) {
    let world = World::new(fixture);
    world.lose_settlements(1);
    let process = world.start(succeeds).await;
    world.publish(["one"]).await;
    world.until_settled(1).await;
    world.stop(process).await;
    let steps = world.journal.steps("one");
    let deliveries = steps.iter().filter(|step| **step == Step::Received).count();
    assert!(steps.contains(&Step::Lost) && deliveries >= 2, "the message comes again: {steps:?}");
    assert_eq!(world.journal.runs("one"), 1, "the message that comes again does not run");
}

pub(in crate::sources) async fn a_run_outlives_the_ack_deadline(fixture: Fixture) {
    let span = fixture.ack_deadline() * 7 / 2;
    let world = World::new(fixture);
    let process = world.start(move |run: Run| async move {
        sleep(span).await;
        succeeds(run).await
    });
    let process = process.await;
    world.publish(["slow"]).await;
    world.until_settled(1).await;
    world.stop(process).await;
    assert_eq!(world.journal.runs("slow"), 1, "an event runs once, however long that takes");
    let deliveries = world.journal.count(|entry| entry.step == Step::Received);
    assert_eq!(deliveries, 1, "the deadline of a running event is extended");
}

pub(in crate::sources) async fn messages_that_wait_outlive_the_ack_deadline(fixture: Fixture) {
    let span = fixture.ack_deadline();
    let world = World::new(fixture);
    world.publish(["1", "2", "3", "4"]).await;
    let process = world
        .start_with(
            |builder| builder.concurrency(1).max_in_flight(4),
            move |run: Run| async move {
                sleep(span).await;
                succeeds(run).await
            },
        )
        .await;
    world.until_settled(4).await;
    world.stop(process).await;
    let deliveries = world.journal.count(|entry| entry.step == Step::Received);
    assert_eq!(deliveries, 4, "the deadlines of messages that wait are extended");
}

/// A handler that has its effect after a moment.
pub(super) async fn succeeds(run: Run) -> Result<(), semel_core::WorkError> {
    sleep(Duration::from_millis(2)).await;
    run.effect().await;
    Ok(())
}
