//! Network faults between stores and real servers, one at a time.

mod dropped_callers;
mod flood;
mod lost_replies;
mod runtimes;
mod silence;
mod stall;
mod subject;
mod wiped_server;

/// Makes a test of each promise for a store.
macro_rules! faults {
    ($store:ident: $($module:ident::$promise:ident,)*) => {
        mod $store {
            $(#[test]
            fn $promise() {
                crate::stores::subject::run(crate::stores::subject::$store(), crate::stores::$module::$promise);
            })*
        }
    };
}

macro_rules! for_each_store {
    ($($promises:tt)*) => {
        faults!(postgres: $($promises)*);
        faults!(redis: $($promises)*);
        faults!(valkey: $($promises)*);
        faults!(nats: $($promises)*);
    };
}

for_each_store! {
    lost_replies::a_claim_whose_reply_is_lost_is_granted_to_its_retry,
    lost_replies::an_outcome_whose_reply_is_lost_is_recorded_once,
    lost_replies::an_outcome_whose_reply_is_lost_is_not_denied,
    lost_replies::a_claim_that_arrives_late_belongs_to_its_caller,
    silence::a_black_hole_is_unavailable_in_time_and_the_store_recovers,
    silence::requests_without_replies_take_effect,
    silence::a_slow_server_answers_every_call,
    silence::a_refusing_server_is_unavailable_at_once,
    silence::an_engine_does_not_wait_for_a_store_that_is_down,
    stall::a_claim_that_overtakes_a_completion_takes_nothing_over,
    stall::a_claim_that_overtakes_a_renewal_takes_nothing_over,
    stall::a_claim_that_overtakes_a_completion_holds_nothing,
    stall::the_key_of_an_owner_that_stays_silent_is_taken_over_after_the_grace_period,
    flood::a_batch_that_is_cut_leaves_every_caller_its_own_answer,
    flood::more_callers_than_connections_are_all_answered,
    flood::callers_of_a_silent_server_do_not_queue_for_ever,
    dropped_callers::a_dropped_call_does_not_disturb_later_calls,
}

/// Not for NATS: a runtime has one connection there.
mod connections_that_fall_silent_together_are_replaced_together {
    use crate::stores::{silence, subject};

    #[test]
    fn redis() {
        let promise = silence::connections_that_fall_silent_together_are_replaced_together;
        subject::run(subject::redis(), promise);
    }

    #[test]
    fn postgres() {
        let promise = silence::connections_that_fall_silent_together_are_replaced_together;
        subject::run(subject::postgres(), promise);
    }
}

/// Makes a test of each promise about runtimes for a store. These tests build their own runtimes.
macro_rules! runtimes {
    ($store:ident as $module:ident: $($promise:ident,)*) => {
        mod $module {
            $(#[test]
            fn $promise() {
                crate::stores::runtimes::$promise(crate::stores::subject::$store());
            })*
        }
    };
}

macro_rules! for_each_store_on_runtimes {
    ($($promises:tt)*) => {
        runtimes!(postgres as postgres_on_runtimes: $($promises)*);
        runtimes!(redis as redis_on_runtimes: $($promises)*);
        runtimes!(nats as nats_on_runtimes: $($promises)*);
    };
}

for_each_store_on_runtimes! {
    a_runtime_that_calls_often_has_connections_until_it_ends,
    runtimes_beyond_the_limit_are_answered_and_get_connections_later,
    calls_return_to_their_own_connections_after_a_cut,
    no_call_fails_while_connections_come_up,
    a_runtime_without_sockets_is_answered,
    a_dropped_store_leaves_no_connection,
    a_run_is_recorded_although_the_runtime_of_its_call_ended,
    calls_queued_on_a_runtime_that_ended_may_be_repeated,
    a_handler_that_blocks_its_runtime_keeps_its_key_and_other_calls_are_answered,
}
