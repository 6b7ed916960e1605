//! Every planted bug of a source breaks the promise that it should break.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use semel_conformance::sources::{ALL, SourcePromise};

use super::wrong_source::{Bug, WrongFixture};

/// Bugs that the promises of a source alone catch, and the promise that each breaks at least.
const BUGS: [(Bug, &str); 29] = [
    (Bug::AcksAtReceive, "deadlines::an_unsettled_message_comes_again"),
    (Bug::AcksSilentlyNothing, "settling::an_acked_message_never_comes_again"),
    (Bug::AcksANeighbour, "settling::an_acked_message_leaves_its_neighbours"),
    (Bug::LosesANack, "settling::a_nacked_message_comes_again"),
    (Bug::IgnoresDelays, "settling::a_nacked_message_waits_for_its_delay"),
    (Bug::TakesARejectForANack, "settling::a_rejected_message_never_comes_again"),
    (Bug::ReordersAKey, "handover::a_key_is_in_order"),
    (Bug::ForgetsOrderingKeys, "handover::an_ordering_key_is_the_producers"),
    (Bug::HandsOverMoreThanMax, "handover::no_more_than_max_are_handed_over"),
    (Bug::HandsOverTwice, "deadlines::an_extended_message_does_not_come_again"),
    (Bug::EndsWhenIdle, "handover::an_empty_queue_is_no_end"),
    (Bug::ChangesThePayload, "handover::body_and_headers_are_untouched"),
    (Bug::ReadsThePayloadAsText, "handover::body_and_headers_are_untouched"),
    (Bug::DropsAHeader, "handover::body_and_headers_are_untouched"),
    (Bug::KeepsTheLastValueOfAHeader, "handover::repeated_headers_keep_their_order"),
    (Bug::MakesUpMessageIds, "handover::a_message_id_is_the_producers"),
    (Bug::LosesTheMessageId, "handover::a_message_id_is_the_producers"),
    (Bug::CountsInThePosition, "settling::a_position_is_the_same_for_every_delivery"),
    (Bug::HasOnePosition, "settling::a_position_is_the_same_for_every_delivery"),
    (Bug::StopsCounting, "settling::deliveries_are_counted"),
    (Bug::NeverRedeliversUnsettled, "settling::a_dropped_delivery_comes_again"),
    (Bug::KeepsWhatWasDropped, "connections::a_process_that_is_gone_loses_nothing"),
    (Bug::KeepsWhatADroppedCallTook, "connections::a_dropped_receive_loses_nothing"),
    (Bug::DoesNotExtend, "deadlines::an_extended_message_does_not_come_again"),
    (Bug::ExtendsAfterANack, "deadlines::extending_after_a_nack_does_nothing"),
    (Bug::RevivesByExtending, "deadlines::extending_after_a_nack_does_nothing"),
    (Bug::LosesWhatItHoldsAtClose, "connections::a_closed_source_loses_nothing"),
    (Bug::LosesUnsettledAtARestart, "connections::a_restart_of_the_broker_loses_nothing"),
    (Bug::ReportsALagThatStays, "handover::the_lag_counts_what_waits"),
];

/// Bugs that a whole consumer shows, too.
const BUGS_OF_CONSUMERS: [(Bug, &str); 7] = [
    (Bug::AcksAtReceive, "crashes::a_crash_before_the_effect_loses_nothing"),
    (Bug::LosesANack, "failures::a_failed_attempt_is_repeated_after_a_pause"),
    (Bug::ReordersAKey, "order::a_key_runs_in_order"),
    (Bug::DoesNotExtend, "runs::a_run_outlives_the_ack_deadline"),
    (Bug::NeverRedeliversUnsettled, "runs::a_lost_ack_is_no_second_run"),
    (Bug::KeepsWhatWasDropped, "crashes::a_crash_before_the_effect_loses_nothing"),
    (Bug::AcksANeighbour, "chaos::every_event_has_one_outcome"),
];

/// For promises in paused time.
const LONG: Duration = Duration::from_secs(600);
/// For promises in real time that have to fail.
const SHORT: Duration = Duration::from_secs(4);

fn named(name: &str) -> &'static SourcePromise {
    ALL.iter()
        .find(|promise| promise.name() == name)
        .unwrap_or_else(|| panic!("there is no promise {name}"))
}

/// Promises of a source alone need no real time: all of its clocks are tokio's. A promise that the broker need not keep
/// is not broken.
fn breaks_in_paused_time(bug: Bug, promise: &SourcePromise) -> bool {
    if promise.missing_ability(&WrongFixture::new(bug, LONG)).is_some() {
        return false;
    }
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let check = || runtime.block_on(promise.check(Arc::new(WrongFixture::new(bug, LONG))));
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

fn breaks_in_real_time(bug: Bug, promise: &SourcePromise) -> bool {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let check = || runtime.block_on(promise.check(Arc::new(WrongFixture::new(bug, SHORT))));
    let broken = catch_unwind(AssertUnwindSafe(check)).is_err();
    runtime.shutdown_background();
    broken
}

#[test]
fn a_source_without_a_bug_keeps_every_promise() {
    for promise in ALL.iter().filter(|promise| !promise.runs_a_consumer()) {
        assert!(!breaks_in_paused_time(Bug::None, promise), "{promise:?}");
    }
}

#[test]
fn every_planted_bug_breaks_its_promise() {
    for (bug, name) in BUGS {
        let alone = ALL.iter().filter(|promise| !promise.runs_a_consumer());
        let broken: Vec<_> = alone.filter(|promise| breaks_in_paused_time(bug, promise)).collect();
        println!("{bug:?}: {broken:?}");
        assert!(
            broken.iter().any(|promise| promise.name() == name),
            "{name} does not catch {bug:?}"
        );
    }
}

#[test]
fn a_consumer_on_a_wrong_source_breaks_its_promise() {
    // Each waits most of the time, for something that does not happen.
    let check = |(bug, name)| {
        std::thread::spawn(move || {
            assert!(breaks_in_real_time(bug, named(name)), "{name} does not catch {bug:?}");
        })
    };
    let checks = BUGS_OF_CONSUMERS.map(check);
    for check in checks {
        check.join().unwrap();
    }
}
