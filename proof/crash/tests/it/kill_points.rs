//! Killed at a named point, a key ends as its policy says.

use std::time::Duration;

use semel_crash::{
    Answer, Event, KeyId, Kind, Op, Plan, World,
    ledger::{Entry, What},
    load::{Dumped, POINTS},
};

use crate::PROGRAM;

const BOUND: Duration = Duration::from_secs(60);
/// So long that a machine which stands still for a while loses no owner.
const LEASE_MS: u64 = 5000;
const DURABLE: [&str; 2] = ["plain:{dir}/store", "file:{dir}/store"];
const RERUN: KeyId = KeyId(0);
const HOLD: KeyId = KeyId(6);

/// What is left after a worker was killed at `point` and another brought the key to its end.
struct Left {
    events: Vec<Event>,
    effects: Vec<Entry>,
    record: Dumped,
}

fn kill_at(point: &str, key: KeyId) -> Vec<Left> {
    DURABLE.iter().map(|store| kill_over(store, point, key)).collect()
}

fn kill_over(store: &str, point: &str, key: KeyId) -> Left {
    let plan = Plan::new(PROGRAM, store);
    let mut world = World::start(&plan).unwrap();
    let mut doomed = world
        .worker(&plan, plan.seed, |job| {
            (job.first_key, job.keys, job.lease_ms) = (key.0, 1, LEASE_MS);
            job.stop_at = Some(point.parse().unwrap());
        })
        .unwrap();
    doomed.await_news(Op::Point, BOUND).unwrap();
    world.kill(doomed).unwrap();
    let mut settles = world
        .worker(&plan, 0, |job| {
            (job.first_key, job.keys, job.lease_ms) = (key.0, 1, LEASE_MS);
            job.settle = true;
        })
        .unwrap();
    settles.await_news(Op::Done, BOUND).unwrap();
    world.end(settles).unwrap();
    let record = world.dump(key.0 + 1).unwrap().remove(0);
    let (events, ledger) = world.evidence().unwrap();
    let effects = ledger.into_iter().filter(|entry| entry.what == What::Effect).collect();
    Left { events, effects, record }
}

#[test]
fn hold_killed_after_its_effect_is_unknown_and_never_runs_again() {
    for left in kill_at("after-effect", HOLD) {
        assert_eq!(left.record.record.answer, Some(Answer::Unknown));
        assert_eq!(left.effects.len(), 1);
    }
}

#[test]
fn rerun_killed_after_its_effect_runs_again_under_a_higher_token() {
    for left in kill_at("after-effect", RERUN) {
        assert_eq!(left.record.record.answer, Some(Answer::Completed));
        let tokens: Vec<_> = left.effects.iter().map(|effect| effect.token).collect();
        assert!(matches!(tokens[..], [first, second] if first < second), "{tokens:?}");
    }
}

#[test]
fn rerun_killed_before_its_effect_takes_effect_once() {
    for left in kill_at("before-effect", RERUN) {
        assert_eq!(left.record.record.answer, Some(Answer::Completed));
        assert_eq!(left.effects.len(), 1);
    }
}

#[test]
fn an_outcome_recorded_but_not_told_is_replayed() {
    for left in kill_at("after-complete", RERUN) {
        let asked = |event: &&Event| event.op == Op::Complete && event.r#type == Kind::Invoke;
        let killed = left.events.iter().rfind(|event| asked(event) && event.process == 1).unwrap();
        assert_eq!(left.record.record.digest, killed.detail.digest);
        assert!(!left.events.iter().any(|event| asked(&event) && event.process == 2));
    }
}

#[test]
fn a_call_cut_off_by_a_kill_stays_open_in_the_history() {
    for left in kill_at("after-claim", RERUN) {
        let cut = |op| {
            let is =
                |event: &&Event| (event.op, event.r#type, event.process) == (op, Kind::Info, 1);
            left.events.iter().filter(is).count()
        };
        assert!(cut(Op::Claim) >= 1 && cut(Op::Run) >= 1);
    }
}

#[test]
fn every_named_point_is_reached_under_load() {
    let plan = Plan::new(PROGRAM, "file:{dir}/store");
    for point in POINTS {
        let mut world = World::start(&plan).unwrap();
        let stop_at = Some(point.parse().unwrap());
        let mut worker = world.worker(&plan, 1, |job| job.stop_at = stop_at).unwrap();
        let reached = worker.await_news(Op::Point, BOUND).unwrap();
        assert_eq!(reached.detail.point.as_deref(), Some(*point));
        world.kill(worker).unwrap();
    }
}
