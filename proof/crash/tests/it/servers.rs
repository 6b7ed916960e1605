//! Stores that processes share lose nothing that they acknowledged, whatever happens to their workers,
//! to their server and to the way there.

use semel_crash::{Plan, Report, check::Invariant, storm};

use crate::PROGRAM;

fn blown(store: &str, kills: u32, blows: u32) -> Report {
    let plan = Plan::new(PROGRAM, store).kills(kills).blows(blows);
    let report = storm(&plan).unwrap();
    println!("{report}");
    report
}

/// Every kind of blow twice.
#[test]
fn postgres_keeps_its_word_through_kills_of_workers_and_servers() {
    let report = blown("postgres:", 40, 20);
    assert!(report.passed(), "{report}");
}

#[test]
fn redis_keeps_its_word_through_kills_of_workers_and_servers() {
    let report = blown("redis:", 40, 20);
    assert!(report.passed(), "{report}");
}

#[test]
fn nats_keeps_its_word_through_kills_of_workers_and_servers() {
    let report = blown("nats:", 40, 18);
    assert!(report.passed(), "{report}");
}

/// PostgreSQL and the Redis in front of it, each struck in every way.
#[test]
fn an_arbiter_keeps_its_word_through_kills_of_workers_and_servers() {
    let report = blown("arbiter:", 40, 20);
    assert!(report.passed(), "{report}");
}

/// What the harness would say of a server that acknowledges what it will not have after a crash.
#[test]
fn a_server_that_forgets_is_caught() {
    let report = blown("forgetful:", 10, 10);
    assert_eq!(report.findings.counts.server_kills, 1, "{report}");
    assert!(report.broken().contains(&Invariant::I6), "{report}");
    report.discard().unwrap();
}
