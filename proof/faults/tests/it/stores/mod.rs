//! What every store behind a server does when the network goes wrong, with the real servers.

mod dropped_callers;
mod flood;
mod lost_replies;
mod runtimes;
mod silence;
mod subject;
mod wiped_server;

/// A test for each promise, and all of that for each store.
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
    lost_replies::a_claim_that_arrives_late_is_still_its_callers,
    silence::a_black_hole_is_unavailable_in_time_and_forgotten_afterwards,
    silence::requests_without_replies_have_happened,
    silence::a_slow_server_answers_everybody,
    silence::a_refusing_server_is_unavailable_at_once,
    silence::an_engine_does_not_wait_for_a_store_that_is_gone,
    flood::a_batch_that_is_cut_leaves_every_caller_its_own_answer,
    flood::more_callers_than_connections_are_all_answered,
    flood::callers_of_a_silent_server_do_not_queue_for_ever,
    dropped_callers::a_caller_that_leaves_takes_nothing_along,
}

/// Over NATS a runtime has one connection.
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

/// The same for what is about runtimes, and has its own.
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
    runtimes_beyond_the_limit_are_answered_and_have_their_turn,
    calls_come_back_to_connections_that_were_cut,
    no_call_fails_while_connections_come_up,
    a_runtime_without_sockets_is_answered,
    nothing_is_left_of_a_store_that_is_gone,
    what_ran_is_recorded_when_the_runtime_of_its_call_is_gone,
    calls_that_were_queued_on_a_runtime_that_is_gone_may_be_made_again,
    a_handler_that_blocks_its_runtime_keeps_its_key_and_other_calls_are_answered,
}
