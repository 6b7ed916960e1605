//! Shared stores lose nothing that they acknowledged when workers and servers are killed and connections fail.

use semel_crash::{ChaosPlan, ChaosReport, chaos_run, check::Invariant};

use crate::PROGRAM;

fn chaos_run_with_faults(store: &str, kills: u32, faults: u32) -> ChaosReport {
    let plan = ChaosPlan::new(PROGRAM, store).kills(kills).faults(faults);
    let report = chaos_run(&plan).unwrap();
    println!("{report}");
    report
}

/// Every kind of fault twice.
#[test]
fn postgres_loses_nothing_through_kills_of_workers_and_servers() {
    let report = chaos_run_with_faults("postgres:", 40, 20);
    assert!(report.passed(), "{report}");
}

#[test]
fn redis_loses_nothing_through_kills_of_workers_and_servers() {
    let report = chaos_run_with_faults("redis:", 40, 20);
    assert!(report.passed(), "{report}");
}

#[test]
fn nats_loses_nothing_through_kills_of_workers_and_servers() {
    let report = chaos_run_with_faults("nats:", 40, 18);
    assert!(report.passed(), "{report}");
}

/// PostgreSQL and the Redis in front of it, each with every kind of fault.
#[test]
fn an_arbiter_loses_nothing_through_kills_of_workers_and_servers() {
    let report = chaos_run_with_faults("arbiter:", 40, 20);
    assert!(report.passed(), "{report}");
}

/// A server that acknowledges what it does not have after a crash.
#[test]
fn a_server_without_persistence_is_caught() {
    let report = chaos_run_with_faults("forgetful:", 10, 10);
    assert_eq!(report.findings.counts.server_kills, 1, "{report}");
    assert!(report.broken().contains(&Invariant::I6), "{report}");
    report.discard().unwrap();
}
