//! Consumers of events and their broker are killed: one outcome for each event, and no run without a reason.

use semel_crash::consumer::{BrokerKind, ConsumerChaosPlan, ConsumerChaosReport, chaos_run};

use crate::PROGRAM;

#[test]
fn every_event_has_one_outcome_though_processes_and_the_broker_are_killed() {
    let mut plan = ConsumerChaosPlan::new(PROGRAM, BrokerKind::Nats, 24);
    (plan.events, plan.poison) = (12_000, 1);
    run(&plan);
}

#[test]
fn no_committed_offset_passes_an_unfinished_event_though_processes_and_kafka_are_killed() {
    let mut plan = ConsumerChaosPlan::new(PROGRAM, BrokerKind::Kafka, 24);
    (plan.events, plan.poison, plan.server_kills) = (6_000, 1, 3);
    let report = run(&plan);
    assert!(report.tally.offsets >= 20, "the watch has seen offsets move: {report}");
}

fn run(plan: &ConsumerChaosPlan) -> ConsumerChaosReport {
    let report = chaos_run(plan).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
    // It has six attempts, and the run itself may kill the process at some of them.
    assert!(report.poisoned >= 4, "the poison event kills processes: {report}");
    report
}
