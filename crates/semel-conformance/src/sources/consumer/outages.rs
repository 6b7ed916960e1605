//! Other processes, shutdowns, and outages of the store and the broker.

use std::{sync::Arc, time::Duration};

use semel_consumer::Order;
use tokio::{
    sync::{Semaphore, watch},
    time::sleep,
};

use super::{Run, Step, World, failures::refuses, runs::succeeds, world::is_final};
use crate::sources::promises::Fixture;

pub(in crate::sources) async fn a_busy_event_is_delayed(fixture: Fixture) {
    // A broker with partitions gives some of them to the second process.
    const COPIES: usize = 32;
    let world = World::new(fixture);
    let open = watch::Sender::new(false);
    let gate = open.subscribe();
    let owner = world.start_with(
        // It takes no second message while its handler is held.
        |builder| builder.concurrency(1).max_in_flight(1),
        move |run: Run| {
            let mut gate = gate.clone();
            async move {
                let _ = gate.wait_for(|is_open| *is_open).await;
                succeeds(run).await
            }
        },
    );
    let owner = owner.await;
    world.publish(["one"]).await;
    world.until("the event runs", 1, |entry| matches!(entry.step, Step::Ran { .. })).await;
    world.publish(["one"; COPIES]).await;
    let other = world.start(succeeds).await;
    let number = other.identity.number;
    world
        .until("the copy is given back", 1, |entry| {
            entry.process == number
                && matches!(entry.step, Step::Nacked(delay) if delay > Duration::ZERO)
        })
        .await;
    let settled = world.journal.count(|entry| is_final(&entry.step));
    assert_eq!(settled, 0, "nothing is acknowledged while the event runs");
    open.send_replace(true);
    world.until_settled(1 + COPIES).await;
    world.stop(owner).await;
    world.stop(other).await;
    let steps = world.journal.steps("one");
    let recorded = steps.iter().position(|step| *step == Step::Recorded);
    let acked = steps.iter().position(|step| *step == Step::Acked);
    assert!(recorded < acked, "a copy is acknowledged only after the outcome: {steps:?}");
    assert_eq!(world.journal.runs("one"), 1, "a copy of an event that runs elsewhere does not run");
}

pub(in crate::sources) async fn a_shutdown_returns_what_waits(fixture: Fixture) {
    // Where messages wait depends on the order: for a free handler, or for a worker.
    let world = World::new(fixture);
    returns_what_waits(&world, Order::Strict).await;
    let world = World::new(world.fixture);
    returns_what_waits(&world, Order::Relaxed).await;
}

async fn returns_what_waits(world: &World, order: Order) {
    const COUNT: usize = 8;
    const RUNNING: usize = 2;
    let patience = world.fixture.patience();
    world.publish((0..COUNT).map(|number| number.to_string())).await;
    let permits = Arc::new(Semaphore::new(0));
    let gate = permits.clone();
    let process = world.start_with(
        move |builder| builder.order(order).concurrency(RUNNING).max_in_flight(COUNT),
        move |run: Run| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.expect("never closed").forget();
                succeeds(run).await
            }
        },
    );
    let process = process.await;
    world.until("all messages are received", COUNT, |entry| entry.step == Step::Received).await;
    world.until("two events run", RUNNING, |entry| matches!(entry.step, Step::Ran { .. })).await;
    let number = process.identity.number;
    process.control.stop();
    let returned = COUNT - RUNNING;
    world
        .until("what waits is given back", returned, |entry| matches!(entry.step, Step::Nacked(_)))
        .await;
    permits.add_permits(COUNT);
    let report = process.stop(patience).await;
    assert_eq!(report.cut_off, 0, "a shutdown waits for running handlers");
    assert_eq!(
        report.returned, returned,
        "the report counts what was given back\n{:?}",
        world.journal
    );
    let acked = world.journal.count(|entry| entry.process == number && entry.step == Step::Acked);
    assert_eq!(acked, RUNNING, "running events are recorded and acknowledged");
    let next = world.start(succeeds).await;
    world.until_settled(COUNT).await;
    world.stop(next).await;
    for id in 0..COUNT {
        assert_eq!(world.journal.runs(&id.to_string()), 1, "every event runs once");
    }
}

pub(in crate::sources) async fn a_store_that_is_down_loses_nothing(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start(succeeds).await;
    world.publish(["before"]).await;
    world.until_settled(1).await;
    world.store_down.set(true);
    let ids = ["1", "2", "3", "4", "5"];
    world.publish(ids).await;
    world.until("messages are given back", 5, |entry| matches!(entry.step, Step::Nacked(_))).await;
    let settled = world.journal.count(|entry| is_final(&entry.step));
    assert_eq!(settled, 1, "nothing is acknowledged while the store is down");
    assert_eq!(world.letters().len(), 0, "an outage of the store makes no dead letter");
    world.store_down.set(false);
    world.until_settled(1 + ids.len()).await;
    world.stop(process).await;
    for id in ids {
        assert_eq!(world.journal.runs(id), 1, "every event runs once");
        assert_eq!(world.journal.steps(id).last(), Some(&Step::Acked));
    }
}

pub(in crate::sources) async fn an_outcome_that_cannot_be_recorded_is_not_acked(fixture: Fixture) {
    let world = World::new(fixture);
    let store_down = world.store_down.clone();
    let outage = world.fixture.ack_deadline() * 2;
    let process = world.start_with(
        // The lease outlasts the outage, so that the event stays with its owner.
        move |builder| builder.lease(outage * 10),
        move |run: Run| {
            let store_down = store_down.clone();
            async move {
                run.effect().await;
                store_down.set(true);
                Ok(())
            }
        },
    );
    let process = process.await;
    world.publish(["one"]).await;
    world.until("the handler ends", 1, |entry| matches!(entry.step, Step::Ended { .. })).await;
    sleep(outage).await;
    let settled = world.journal.count(|entry| is_final(&entry.step));
    assert_eq!(settled, 0, "nothing is acknowledged before its outcome is recorded");
    world.store_down.set(false);
    world.until_settled(1).await;
    world.stop(process).await;
    assert_eq!(world.journal.recorded(), 1, "the outcome is recorded once the store is back");
    assert_eq!(
        world.journal.runs("one"),
        1,
        "an event whose outcome is not recorded yet does not run again"
    );
}

pub(in crate::sources) async fn a_dead_letter_sink_that_is_down_loses_nothing(fixture: Fixture) {
    let world = World::new(fixture);
    world.sink_down.set(true);
    let process = world.start(refuses).await;
    world.publish(["one"]).await;
    world.until("a letter is refused", 2, |entry| entry.step == Step::Unpublished).await;
    let settled =
        world.journal.count(|entry| is_final(&entry.step) || entry.step == Step::Recorded);
    assert_eq!(
        settled, 0,
        "a failure is neither recorded nor settled before its letter is published"
    );
    world.sink_down.set(false);
    world.until_settled(1).await;
    world.stop(process).await;
    assert_eq!(world.letters().len(), 1, "an event has one letter");
    assert_eq!(world.journal.recorded(), 1, "an event has one outcome");
}

pub(in crate::sources) async fn a_broker_restart_under_load_loses_nothing(fixture: Fixture) {
    const COUNT: usize = 200;
    let world = World::new(fixture);
    let ids: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    world.publish(&ids).await;
    let process = world.start(succeeds).await;
    world.until("some events are recorded", COUNT / 4, |entry| entry.step == Step::Recorded).await;
    world.fixture.restart_broker().await;
    world.publish(["new"]).await;
    world.until("all events are recorded", COUNT + 1, |entry| entry.step == Step::Recorded).await;
    world.stop(process).await;
    for id in ids.iter().map(String::as_str).chain(["new"]) {
        assert_eq!(world.journal.runs(id), 1, "every event runs once");
    }
}
