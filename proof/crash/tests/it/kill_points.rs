//! When its owner is killed at a kill point, a key ends as its policy says.

use std::time::Duration;

use semel_crash::{
    ChaosPlan, Event, EventKind, Harness, KeyId, Op, ReplyKind,
    ledger::{LedgerEntry, LedgerFact},
    load::{DumpedRecord, KILL_POINTS},
};

use crate::PROGRAM;

const BOUND: Duration = Duration::from_secs(60);
/// Long enough that a busy machine loses no owner.
const LEASE_MS: u64 = 5000;
const DURABLE: [&str; 2] = ["plain:{dir}/store", "file:{dir}/store"];
const RERUN: KeyId = KeyId(0);
const HOLD: KeyId = KeyId(6);

/// The evidence after a worker was killed at a kill point and another worker drained the key.
struct AfterKill {
    events: Vec<Event>,
    effects: Vec<LedgerEntry>,
    record: DumpedRecord,
}

fn kill_at(point: &str, key: KeyId) -> Vec<AfterKill> {
    DURABLE.iter().map(|store| kill_over(store, point, key)).collect()
}

fn kill_over(store: &str, point: &str, key: KeyId) -> AfterKill {
    let plan = ChaosPlan::new(PROGRAM, store);
    let mut harness = Harness::start(&plan).unwrap();
    let mut worker_to_kill = harness
        .worker(&plan, plan.seed, |job| {
            (job.first_key, job.keys, job.lease_ms) = (key.0, 1, LEASE_MS);
            job.stop_at = Some(point.parse().unwrap());
        })
        .unwrap();
    worker_to_kill.await_event(Op::Point, BOUND).unwrap();
    harness.kill(worker_to_kill).unwrap();
    let mut drains = harness
        .worker(&plan, 0, |job| {
            (job.first_key, job.keys, job.lease_ms) = (key.0, 1, LEASE_MS);
            job.drain = true;
        })
        .unwrap();
    drains.await_event(Op::Done, BOUND).unwrap();
    harness.end(drains).unwrap();
    let record = harness.dump(key.0 + 1).unwrap().remove(0);
    let (events, ledger) = harness.evidence().unwrap();
    let effects = ledger.into_iter().filter(|entry| entry.fact == LedgerFact::Effect).collect();
    AfterKill { events, effects, record }
}

#[test]
fn hold_killed_after_its_effect_is_unknown_and_never_runs_again() {
    for left in kill_at("after-effect", HOLD) {
        assert_eq!(left.record.record.reply, Some(ReplyKind::Unknown));
        assert_eq!(left.effects.len(), 1);
    }
}

#[test]
fn rerun_killed_after_its_effect_runs_again_under_a_higher_token() {
    for left in kill_at("after-effect", RERUN) {
        assert_eq!(left.record.record.reply, Some(ReplyKind::Completed));
        let tokens: Vec<_> = left.effects.iter().map(|effect| effect.token).collect();
        assert!(matches!(tokens[..], [first, second] if first < second), "{tokens:?}");
    }
}

#[test]
fn rerun_killed_before_its_effect_takes_effect_once() {
    for left in kill_at("before-effect", RERUN) {
        assert_eq!(left.record.record.reply, Some(ReplyKind::Completed));
        assert_eq!(left.effects.len(), 1);
    }
}

#[test]
fn an_outcome_recorded_without_a_reply_is_replayed() {
    for left in kill_at("after-complete", RERUN) {
        let is_completion =
            |event: &&Event| event.op == Op::Complete && event.r#type == EventKind::Invoke;
        let killed =
            left.events.iter().rfind(|event| is_completion(event) && event.process == 1).unwrap();
        assert_eq!(left.record.record.digest, killed.detail.digest);
        assert!(!left.events.iter().any(|event| is_completion(&event) && event.process == 2));
    }
}

#[test]
fn a_call_cut_off_by_a_kill_stays_open_in_the_history() {
    for left in kill_at("after-claim", RERUN) {
        let cut = |op| {
            let is = |event: &&Event| {
                (event.op, event.r#type, event.process) == (op, EventKind::Info, 1)
            };
            left.events.iter().filter(is).count()
        };
        assert!(cut(Op::Claim) >= 1 && cut(Op::Run) >= 1);
    }
}

#[test]
fn every_named_point_is_reached_under_load() {
    let plan = ChaosPlan::new(PROGRAM, "file:{dir}/store");
    for point in KILL_POINTS {
        let mut harness = Harness::start(&plan).unwrap();
        let stop_at = Some(point.parse().unwrap());
        let mut worker = harness.worker(&plan, 1, |job| job.stop_at = stop_at).unwrap();
        let reached = worker.await_event(Op::Point, BOUND).unwrap();
        assert_eq!(reached.detail.point.as_deref(), Some(*point));
        harness.kill(worker).unwrap();
    }
}
