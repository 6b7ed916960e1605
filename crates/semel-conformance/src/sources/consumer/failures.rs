//! Handlers that fail: attempts that are repeated, and dead letters.

use std::{panic::resume_unwind, time::Duration};

use semel_consumer::dead_letter::DeadLetterReason;
use semel_core::WorkError;

use super::{Run, Step, World, runs::succeeds, world::FIRST_PAUSE};
use crate::sources::promises::Fixture;

pub(in crate::sources) async fn a_failed_attempt_is_repeated_after_a_pause(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start(|run: Run| async move {
        match run.attempt {
            1 | 2 => Err(WorkError::retry("the suite fails this attempt")),
            _ => succeeds(run).await,
        }
    });
    let process = process.await;
    world.publish(["one"]).await;
    world.until_settled(1).await;
    world.stop(process).await;
    let steps = world.journal.steps("one");
    let attempts: Vec<_> = steps.iter().filter_map(attempt).collect();
    assert_eq!(attempts, [1, 2, 3], "a failed attempt is repeated, and counted");
    let pauses: Vec<Duration> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Nacked(pause) => Some(*pause),
            _ => None,
        })
        .collect();
    assert_eq!(
        pauses.len(),
        2,
        "the broker gets a message back after each failed attempt: {steps:?}"
    );
    assert!(pauses[0] >= FIRST_PAUSE / 2 && pauses[1] >= pauses[0], "pauses grow: {pauses:?}");
    assert_eq!(steps.last(), Some(&Step::Acked));
    assert_eq!(world.letters().len(), 0, "an event that succeeded has no letter");
}

const fn attempt(step: &Step) -> Option<u32> {
    match step {
        Step::Ran { attempt } => Some(*attempt),
        _ => None,
    }
}

pub(in crate::sources) async fn a_final_failure_is_one_dead_letter(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start(refuses).await;
    world.publish(["one"]).await;
    world.until_settled(1).await;
    let steps: Vec<_> = world.journal.steps("one").into_iter().map(without_keys).collect();
    let wanted = [
        Step::Received,
        Step::Ran { attempt: 1 },
        Step::Effect { key: String::new() },
        Step::Ended { succeeded: false },
        Step::Published { id: String::new() },
        Step::Recorded,
        Step::Rejected,
    ];
    assert_eq!(steps, wanted, "a dead letter is published, then recorded, then rejected");
    world.publish(["one"]).await;
    world.until_settled(2).await;
    world.stop(process).await;
    assert_eq!(world.journal.runs("one"), 1, "a failed event does not run again");
    let letters = world.letters();
    assert_eq!(letters.len(), 1, "a failed event has one letter");
    let effect = world.journal.entries().into_iter().find_map(|entry| match entry.step {
        Step::Effect { key } => Some(key),
        _ => None,
    });
    assert_eq!(Some(&letters[0].id), effect.as_ref(), "the letter's id is the downstream key");
    assert_eq!(letters[0].reason, DeadLetterReason::Failed);
    assert_eq!(letters[0].message.body, "the event one", "the letter has the payload, untouched");
}

fn without_keys(step: Step) -> Step {
    match step {
        Step::Effect { .. } => Step::Effect { key: String::new() },
        Step::Published { .. } => Step::Published { id: String::new() },
        other => other,
    }
}

pub(in crate::sources) async fn a_lost_reject_is_no_second_dead_letter(fixture: Fixture) {
    let world = World::new(fixture);
    world.lose_settlements(1);
    let process = world.start(refuses).await;
    world.publish(["one"]).await;
    world.until_settled(1).await;
    world.stop(process).await;
    assert!(world.journal.steps("one").contains(&Step::Lost));
    assert_eq!(world.journal.runs("one"), 1, "the message that comes again does not run");
    let published = world.journal.count(|entry| matches!(entry.step, Step::Published { .. }));
    assert_eq!(published, 1, "the letter is not published again");
}

pub(in crate::sources) async fn a_panic_ends_at_the_cap(fixture: Fixture) {
    let world = World::new(fixture);
    let process = world.start_with(
        |builder| builder.max_attempts(3),
        |run: Run| async move {
            if &*run.id == "poison" {
                // A panic without the message of the panic hook.
                resume_unwind(Box::new("the suite panics"));
            }
            succeeds(run).await
        },
    );
    let process = process.await;
    world.publish(["before", "poison", "after"]).await;
    world.until_settled(3).await;
    world.stop(process).await;
    assert_eq!(world.journal.runs("poison"), 3, "an event runs as often as it may, and no more");
    let reasons: Vec<_> = world.letters().iter().map(|letter| letter.reason).collect();
    assert_eq!(
        reasons,
        [DeadLetterReason::AttemptsExhausted],
        "the event that panics becomes a dead letter"
    );
    assert_eq!(world.journal.steps("poison").last(), Some(&Step::Rejected));
    for id in ["before", "after"] {
        assert_eq!(world.journal.runs(id), 1, "other events are not affected");
    }
}

pub(in crate::sources) async fn a_poison_that_kills_ends_at_the_cap(fixture: Fixture) {
    const ATTEMPTS: u32 = 3;
    let world = World::new(fixture);
    world.publish(["poison"]).await;
    for _ in 0..ATTEMPTS {
        world
            .journal
            .kill_at(|entry| &*entry.id == "poison" && matches!(entry.step, Step::Ran { .. }));
        let process = world.start_with(|builder| builder.max_attempts(ATTEMPTS), succeeds).await;
        world.until_dead(process).await;
    }
    let process = world.start_with(|builder| builder.max_attempts(ATTEMPTS), succeeds).await;
    world.publish(["healthy"]).await;
    world.until_settled(2).await;
    world.stop(process).await;
    assert_eq!(
        world.journal.runs("poison"),
        ATTEMPTS as usize,
        "an event runs as often as it may, and no more"
    );
    let letters = world.letters();
    assert_eq!(letters.len(), 1, "the event that kills becomes a dead letter");
    assert_eq!(letters[0].reason, DeadLetterReason::AttemptsExhausted);
    assert_eq!(world.journal.runs("healthy"), 1, "other events are not affected");
}

pub(super) async fn refuses(run: Run) -> Result<(), WorkError> {
    run.effect().await;
    Err(WorkError::failure("refused", "the suite refuses this event"))
}
