//! Processes that are killed between two steps. From the moment of its death, nothing leaves a process: no call of the
//! store, and no settlement. Its lease and its messages stay as they are.

use semel_core::WorkError;

use super::{Process, Run, Step, World, runs::succeeds};
use crate::sources::promises::Fixture;

pub(in crate::sources) async fn a_crash_before_the_effect_loses_nothing(fixture: Fixture) {
    let world = World::new(fixture);
    world.journal.kill_at(|entry| matches!(entry.step, Step::Ran { .. }));
    let process = world.start(succeeds).await;
    world.publish(["one"]).await;
    restart_after_death(&world, process, succeeds).await;
    assert_eq!(effects(&world).len(), 1, "the effect happens once, in the second process");
    assert_eq!(world.journal.runs("one"), 2);
    assert_eq!(world.journal.recorded(), 1, "an event has one outcome");
}

pub(in crate::sources) async fn a_crash_after_the_effect_has_one_outcome(fixture: Fixture) {
    let world = World::new(fixture);
    world.journal.kill_at(|entry| matches!(entry.step, Step::Effect { .. }));
    let process = world.start(succeeds).await;
    world.publish(["one"]).await;
    restart_after_death(&world, process, succeeds).await;
    let effects = effects(&world);
    assert_eq!(effects.len(), 2, "an effect whose outcome was not recorded is repeated");
    assert_eq!(effects[0], effects[1], "both runs have one downstream key");
    assert_eq!(world.journal.recorded(), 1, "an event has one outcome");
}

pub(in crate::sources) async fn a_crash_before_the_ack_is_no_second_run(fixture: Fixture) {
    let world = World::new(fixture);
    world.journal.kill_at(|entry| entry.step == Step::Recorded);
    let process = world.start(succeeds).await;
    world.publish(["one"]).await;
    restart_after_death(&world, process, succeeds).await;
    assert_eq!(world.journal.runs("one"), 1, "a recorded event does not run again");
    assert_eq!(world.journal.recorded(), 1, "an event has one outcome");
}

pub(in crate::sources) async fn a_crash_at_a_dead_letter_keeps_one_letter(fixture: Fixture) {
    let world = World::new(fixture);
    world.journal.kill_at(|entry| matches!(entry.step, Step::Published { .. }));
    let process = world.start(fails).await;
    world.publish(["one"]).await;
    restart_after_death(&world, process, fails).await;
    let published = world.journal.steps("one").into_iter().filter_map(|step| match step {
        Step::Published { id } => Some(id),
        _ => None,
    });
    let published: Vec<_> = published.collect();
    assert_eq!(published.len(), 2, "a letter is published before its failure is recorded");
    assert_eq!(published[0], published[1], "both letters have one id");
    assert_eq!(world.letters().len(), 1, "an event has one letter");
    assert_eq!(world.journal.recorded(), 1, "an event has one outcome");
}

/// Starts another process once `killed` is dead, and waits until it has settled the event for good.
async fn restart_after_death<F, Fut>(world: &World, killed: Process, handler: F)
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    world.until_dead(killed).await;
    let next = world.start(handler).await;
    world.until_settled(1).await;
    world.stop(next).await;
}

async fn fails(_: Run) -> Result<(), WorkError> {
    Err(WorkError::failure("refused", "the suite refuses this event"))
}

/// The downstream keys of all effects, in order.
fn effects(world: &World) -> Vec<String> {
    let effects = world.journal.entries().into_iter().filter_map(|entry| match entry.step {
        Step::Effect { key } => Some(key),
        _ => None,
    });
    effects.collect()
}
