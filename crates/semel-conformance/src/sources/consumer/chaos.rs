//! Copies, failures and killed processes together: the ledger of all runs shows nothing that the promises do not allow.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rand::seq::SliceRandom;
use semel_core::{ListQuery, State, Store, WorkError};
use tokio::time::{Instant, sleep};

use super::{Entry, Process, Run, Step, World, world::LEASE};
use crate::sources::promises::Fixture;

/// Processes that run at the same time.
const PROCESSES: usize = 2;
/// Processes that are killed.
const KILLS: usize = 8;
/// Of a hundred events, so many have copies.
const COPIES: usize = 30;
const LOOK: Duration = Duration::from_millis(20);

pub(in crate::sources) async fn every_event_has_one_outcome(fixture: Fixture) {
    let count = fixture.events();
    let world = World::new(fixture);
    let ids: Vec<_> = (0..count).map(event_name).collect();
    let copies = ids.iter().take(count * COPIES / 100);
    let mut published: Vec<_> = ids.iter().chain(copies).collect();
    published.shuffle(&mut rand::rng());
    world.publish(published).await;

    let mut processes = Vec::new();
    let mut killed = HashSet::new();
    for kill in 1..=KILLS {
        while processes.len() < PROCESSES {
            processes.push(start(&world).await);
        }
        until_recorded(&world, count * kill / (KILLS + 1)).await;
        let victim: Process = processes.swap_remove(rand::random_range(0..PROCESSES));
        killed.insert(victim.identity.number);
        victim.kill();
    }
    until_recorded(&world, count).await;
    until_drained(&world).await;
    for process in processes {
        world.stop(process).await;
    }

    assert_outcomes(&world, &ids).await;
    let entries = world.journal.entries();
    for (id, steps) in by_event(&entries) {
        assert_runs_are_explained(id, &steps, &killed);
    }
}

/// Some events fail for good, and some fail at first.
fn event_name(number: usize) -> String {
    match number % 50 {
        0 => format!("refused {number}"),
        1..=3 => format!("retried {number}"),
        _ => format!("plain {number}"),
    }
}

async fn start(world: &World) -> Process {
    world
        .start_with(
            // An event may be in each of the killed processes, and fail besides.
            |builder| builder.concurrency(32).max_attempts(100),
            |run: Run| async move {
                if rand::random_ratio(1, 10) {
                    sleep(Duration::from_millis(rand::random_range(1..5))).await;
                }
                run.effect().await;
                match run.id.split(' ').next() {
                    Some("refused") => {
                        Err(WorkError::failure("refused", "the suite refuses this event"))
                    }
                    Some("retried") if rand::random_bool(0.5) => {
                        Err(WorkError::retry("the suite fails this attempt"))
                    }
                    _ => Ok(()),
                }
            },
        )
        .await
}

async fn until_recorded(world: &World, count: usize) {
    // Each kill holds some events for a lease and a deadline; the rest goes on.
    let patience = world.fixture.patience() + LEASE * 4;
    let (mut deadline, mut last) = (Instant::now() + patience, 0);
    loop {
        let recorded = world.journal.recorded();
        if recorded >= count {
            return;
        }
        if recorded > last {
            (deadline, last) = (Instant::now() + patience, recorded);
        }
        assert!(
            Instant::now() < deadline,
            "{recorded} of {count} events are recorded.\n{:?}",
            world.journal
        );
        sleep(LOOK).await;
    }
}

/// Waits until all messages are settled: nothing was received for the time in which every open one comes again.
async fn until_drained(world: &World) {
    let received = || world.journal.count(|entry| entry.step == Step::Received);
    let mut last = received();
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < world.fixture.ack_deadline() * 2 + LEASE {
        sleep(LOOK * 10).await;
        let now = received();
        if now != last {
            (last, quiet_since) = (now, Instant::now());
        }
    }
}

/// Every event has exactly one recorded outcome, and every refused one has one dead letter.
async fn assert_outcomes(world: &World, ids: &[String]) {
    let mut query = ListQuery { limit: 1000, ..ListQuery::default() };
    let (mut succeeded, mut failed) = (HashSet::new(), 0);
    loop {
        let page = world.store.list(&query).await.expect("the memory store lists its records");
        let Some(last) = page.last() else { break };
        query.after = Some(last.key);
        for record in page {
            assert_eq!(
                record.state,
                State::Completed,
                "an event without an outcome: {:?}",
                record.key
            );
            let outcome = record.outcome.expect("a completed record has its outcome");
            match outcome.as_failure() {
                Some(_) => failed += 1,
                None => {
                    let semel_core::Body::Kept(id) = outcome.body() else {
                        panic!("an outcome without its body")
                    };
                    let is_first = succeeded.insert(String::from_utf8_lossy(id).into_owned());
                    assert!(is_first, "two outcomes of one event");
                }
            }
        }
    }
    let refused: HashSet<_> = ids.iter().filter(|id| id.starts_with("refused")).cloned().collect();
    let wanted: HashSet<_> = ids.iter().filter(|id| !id.starts_with("refused")).cloned().collect();
    assert!(succeeded == wanted, "{} events succeeded, expected {}", succeeded.len(), wanted.len());
    assert_eq!(failed, refused.len(), "every refused event has a recorded failure");
    let letters: HashSet<_> =
        world.letters().iter().filter_map(|letter| letter.event_id.clone()).collect();
    assert!(
        letters == refused,
        "{} events have dead letters, expected {}",
        letters.len(),
        refused.len()
    );
    assert_eq!(world.letters().len(), refused.len(), "no event has two dead letters");
}

fn by_event(entries: &[Entry]) -> HashMap<&Arc<str>, Vec<&Entry>> {
    let mut events: HashMap<_, Vec<_>> = HashMap::new();
    for entry in entries {
        events.entry(&entry.id).or_default().push(entry);
    }
    events
}

/// Each run but the last was that of a killed process, or failed in a way that may be repeated. Nothing runs after the
/// outcome is recorded, and nothing is acknowledged before.
fn assert_runs_are_explained(id: &str, steps: &[&Entry], killed: &HashSet<usize>) {
    let mut running: Option<&Entry> = None;
    let (mut is_recorded, mut recording) = (false, None);
    for entry in steps {
        match &entry.step {
            Step::Ran { .. } => {
                assert!(!is_recorded, "event {id} ran after its outcome was recorded: {steps:#?}");
                if let Some(earlier) = running {
                    let is_explained = killed.contains(&earlier.process);
                    assert!(
                        is_explained,
                        "event {id} ran a second time without a reason: {steps:#?}"
                    );
                }
                running = Some(entry);
            }
            // A failure for good is not followed by a run, since it is recorded.
            Step::Ended { succeeded: false } if !id.starts_with("refused") => running = None,
            Step::Ended { .. } => recording = Some(entry.process),
            Step::Recorded => is_recorded = true,
            Step::Acked | Step::Rejected => {
                // Another process may read an outcome before the one that recorded it has written its line.
                let is_read = recording.is_some_and(|process| process != entry.process);
                assert!(
                    is_recorded || is_read,
                    "event {id} was settled before its outcome was recorded: {steps:#?}"
                );
            }
            Step::Received
            | Step::Effect { .. }
            | Step::Published { .. }
            | Step::Unpublished
            | Step::Nacked(_)
            | Step::Lost => {}
        }
    }
    assert!(is_recorded, "event {id} has no outcome");
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const RAN: Step = Step::Ran { attempt: 1 };
    const FAILED: Step = Step::Ended { succeeded: false };
    const SUCCEEDED: Step = Step::Ended { succeeded: true };

    /// Whether a ledger is accepted. Each step has the number of its process; process 1 was killed.
    fn is_explained(ledger: &[(usize, Step)]) -> bool {
        let id: Arc<str> = Arc::from("plain 7");
        let entry = |(process, step): &(usize, Step)| Entry {
            process: *process,
            id: id.clone(),
            step: step.clone(),
        };
        let entries: Vec<_> = ledger.iter().map(entry).collect();
        catch_unwind(|| {
            let steps: Vec<_> = entries.iter().collect();
            assert_runs_are_explained("plain 7", &steps, &HashSet::from([1]));
        })
        .is_ok()
    }

    #[test]
    fn one_run_and_runs_with_a_reason_are_explained() {
        assert!(is_explained(&[
            (0, RAN),
            (0, SUCCEEDED),
            (0, Step::Recorded),
            (0, Step::Acked),
            (2, Step::Acked)
        ]));
        assert!(is_explained(&[(1, RAN), (0, RAN), (0, SUCCEEDED), (0, Step::Recorded)]));
        let read_at_once = [(0, RAN), (0, SUCCEEDED), (2, Step::Acked), (0, Step::Recorded)];
        assert!(is_explained(&read_at_once), "recorded, and the line was written later");
        assert!(is_explained(&[
            (0, RAN),
            (0, FAILED),
            (0, RAN),
            (0, SUCCEEDED),
            (0, Step::Recorded)
        ]));
    }

    #[test]
    fn what_the_promises_do_not_allow_is_found() {
        let second_run = [(0, RAN), (0, SUCCEEDED), (2, RAN), (2, SUCCEEDED), (2, Step::Recorded)];
        assert!(!is_explained(&second_run), "a second run without a reason");
        let at_the_same_time = [(0, RAN), (2, RAN), (0, SUCCEEDED), (0, Step::Recorded)];
        assert!(!is_explained(&at_the_same_time), "two runs at the same time");
        assert!(
            !is_explained(&[(0, RAN), (0, Step::Recorded), (1, RAN)]),
            "a run after the record"
        );
        assert!(
            !is_explained(&[(0, RAN), (0, Step::Acked), (0, Step::Recorded)]),
            "an early acknowledgement"
        );
        let before_its_end = [(0, RAN), (2, Step::Acked), (0, SUCCEEDED), (0, Step::Recorded)];
        assert!(!is_explained(&before_its_end), "an acknowledgement by another process");
        let by_its_owner = [(0, RAN), (0, SUCCEEDED), (0, Step::Acked), (0, Step::Recorded)];
        assert!(!is_explained(&by_its_owner), "the owner waits for the record");
        assert!(!is_explained(&[(0, RAN), (0, SUCCEEDED)]), "no outcome");
    }
}
