//! Consumers of events and their broker are killed: one outcome for each event, and no run without a reason.

use semel_crash::consumer::{ConsumerChaosPlan, chaos_run};

use crate::PROGRAM;

#[test]
fn every_event_has_one_outcome_though_processes_and_the_broker_are_killed() {
    let mut plan = ConsumerChaosPlan::new(PROGRAM, 24);
    (plan.events, plan.poison) = (12_000, 1);
    let report = chaos_run(&plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
    assert!(report.poisoned >= 6, "the poison event kills a process at each attempt: {report}");
}
