//! Whole storms: a store that forgets is caught, a store that keeps its word is not.

use semel_crash::{
    Plan,
    check::{Floor, Invariant},
    storm,
};

use crate::PROGRAM;

#[test]
fn a_store_that_forgets_is_caught() {
    let report = storm(&Plan::new(PROGRAM, "memory:").kills(12)).unwrap();
    let lost = |what| report.findings.violations.iter().any(|it| it.what.starts_with(what));
    assert!(report.broken().contains(&Invariant::I6), "{report}");
    assert!(lost("lost outcome") && lost("lost claim"), "{report}");
    report.discard().unwrap();
}

#[test]
fn processes_that_do_not_see_each_other_are_caught() {
    let mut plan = Plan::new(PROGRAM, "memory:").kills(6);
    plan.workers = 2;
    let report = storm(&plan).unwrap();
    assert!(report.broken().is_superset(&[Invariant::I1, Invariant::I8].into()), "{report}");
    report.discard().unwrap();
}

#[test]
fn a_store_that_answers_before_it_has_written_is_caught() {
    let report = storm(&Plan::new(PROGRAM, "careless:{dir}/store").kills(20)).unwrap();
    assert!(report.broken().contains(&Invariant::I6), "{report}");
    report.discard().unwrap();
}

#[test]
fn a_store_that_writes_before_it_answers_passes() {
    let mut plan = Plan::new(PROGRAM, "plain:{dir}/store").kills(40).seed(40);
    // So few kills leave much to chance; the storm over the embedded store has the whole floor.
    plan.floor = Floor { kills: 40, ..Floor::after(10) };
    let report = storm(&plan).unwrap();
    assert!(report.passed(), "{report}");
    assert_eq!(report.findings.counts.kills, 40);
}

#[test]
fn memory_passes_when_nobody_is_killed() {
    let mut plan = Plan::new(PROGRAM, "memory:").kills(0);
    // One run in five of a Hold key ends Unknown: 64 keys have 16 of these, and one storm in 35 none.
    plan.keys = 256;
    let report = storm(&plan).unwrap();
    assert!(report.passed(), "{report}");
}

#[test]
fn a_run_in_which_nobody_was_killed_and_nothing_happened_fails() {
    let mut plan = Plan::new(PROGRAM, "memory:").kills(0);
    (plan.clients, plan.pauses) = (0, 0);
    let report = storm(&plan).unwrap();
    assert_eq!(report.broken(), [Invariant::I16].into(), "{report}");
    report.discard().unwrap();
}

#[test]
fn a_store_that_does_not_exist_is_named() {
    let error = storm(&Plan::new(PROGRAM, "slate:{dir}").kills(1)).unwrap_err();
    let text = format!("{error:#}");
    let folder = text.split_once("is in ").and_then(|(_, rest)| rest.split(':').next()).unwrap();
    let complaint = std::fs::read_to_string(format!("{folder}/stderr.log")).unwrap();
    assert!(complaint.contains("no store `slate:"), "{complaint}");
    std::fs::remove_dir_all(folder).unwrap();
}
