//! The list of all promises: name, the abilities that it needs, and the promise in a sentence.

use std::{fmt, pin::Pin, sync::Arc};

use super::{
    Broker, SourceAbility, SourceFixture,
    consumer::{chaos, crashes, failures, order, outages, runs},
    promises::{connections, deadlines, handover, settling},
};
use crate::promises::NameOnPanic;

/// Hands the list of all promises to another macro. The only place that names them.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_source_promise {
    ([$($then:tt)*] $with:tt) => {
        $($then)* ! { $with
            handover {
                what_was_published_is_handed_over []
                    "Every published message is handed over, and nothing else."
                body_and_headers_are_untouched []
                    "Body and headers arrive byte for byte."
                repeated_headers_keep_their_order [RepeatsHeaders]
                    "All values of a header arrive, in their order."
                no_more_than_max_are_handed_over []
                    "A call returns one to `max` messages."
                an_empty_queue_is_no_end []
                    "A call waits while there is no message; an empty list would end the consumer."
                a_message_id_is_the_producers []
                    "The producer's id is reported, and none is made up where the producer gave none."
                an_ordering_key_is_the_producers [KeepsOrder]
                    "The producer's ordering key is reported."
                a_key_is_in_order [KeepsOrder]
                    "First deliveries of one ordering key are in the order in which they were published."
                the_lag_counts_what_waits []
                    "The lag counts messages that wait, and goes to zero."
            }
            settling {
                an_acked_message_never_comes_again []
                    "An acknowledged message is not handed over again, to this process or to the next."
                an_acked_message_leaves_its_neighbours []
                    "Acknowledging one message settles no other."
                a_nacked_message_comes_again []
                    "A message that was given back is handed over again."
                a_nacked_message_waits_for_its_delay [DelaysNacks]
                    "A message that was given back is not handed over before its delay is over."
                a_dropped_delivery_comes_again []
                    "A message whose delivery was dropped is handed over again."
                a_rejected_message_never_comes_again []
                    "A rejected message is not handed over again, to this process or to the next."
                a_position_is_the_same_for_every_delivery []
                    "All deliveries of a message have one position, and no other message has it."
                a_body_is_the_same_for_every_delivery []
                    "Later deliveries have the body, the headers, the id and the time of the first."
                deliveries_are_counted [CountsDeliveries]
                    "Each delivery says how often the message was delivered."
            }
            deadlines {
                an_unsettled_message_comes_again [Deadlines]
                    "A message that is not settled in time is handed over again."
                an_extended_message_does_not_come_again [Deadlines]
                    "A message whose deadline is extended is not handed over again, for as long as that goes on."
                an_extended_message_comes_again_at_last [Deadlines]
                    "A message whose deadline is not extended any more is handed over again."
                extending_after_an_ack_does_nothing [Deadlines]
                    "Extending a message that was acknowledged does not bring it back."
                extending_after_a_nack_does_nothing [Deadlines]
                    "Extending a message that was given back does not keep it from coming again."
            }
            connections {
                a_dropped_receive_loses_nothing []
                    "A call that is dropped while it waits loses no message."
                two_processes_share_the_messages []
                    "Two processes get all messages between them, and none again that was acknowledged."
                a_process_that_is_gone_loses_nothing []
                    "What a process had received and not settled is handed over to another."
                a_waiting_call_gets_what_another_process_left [Deadlines]
                    "A call that waits gets a message that another process took and did not settle."
                a_closed_source_loses_nothing []
                    "What was not settled when a source closed is handed over to another."
                a_restart_of_the_broker_loses_nothing [Restarts]
                    "After a restart of the broker a connection that was open gets what is not settled, and what is new."
            }
            runs {
                an_event_is_handled_once []
                    "An event is handled, recorded and acknowledged, in this order."
                a_copy_of_an_event_does_not_run []
                    "A second message with the same event is acknowledged without a run."
                a_lost_ack_is_no_second_run []
                    "An event whose acknowledgement was lost is acknowledged again, without a run."
                a_run_outlives_the_ack_deadline []
                    "A message is not delivered again while its handler runs."
                messages_that_wait_outlive_the_ack_deadline []
                    "A message is not delivered again while it waits for a free handler."
            }
            crashes {
                a_crash_before_the_effect_loses_nothing []
                    "An event whose process is killed before its effect runs again."
                a_crash_after_the_effect_has_one_outcome []
                    "An event whose process is killed after its effect runs again, with the same downstream key."
                a_crash_before_the_ack_is_no_second_run []
                    "An event whose process is killed between record and acknowledgement is not run again."
                a_crash_at_a_dead_letter_keeps_one_letter []
                    "An event whose process is killed between dead letter and record has one letter at the end."
            }
            failures {
                a_failed_attempt_is_repeated_after_a_pause []
                    "An attempt that may be repeated is repeated, after pauses that grow."
                a_final_failure_is_one_dead_letter []
                    "A final failure is published as a dead letter, then recorded, then rejected, and never runs again."
                a_lost_reject_is_no_second_dead_letter []
                    "A dead letter whose rejection was lost is neither run nor published again."
                a_panic_ends_at_the_cap []
                    "An event whose handler panics each time becomes a dead letter after its last attempt."
                a_poison_that_kills_ends_at_the_cap []
                    "An event that kills its process each time becomes a dead letter after its last attempt."
            }
            order {
                a_key_runs_in_order []
                    "Events of one key run one at a time and in order, while other keys run beside them."
                a_retry_holds_its_key []
                    "With strict order, later events of a key wait for one that is tried again."
                with_relaxed_order_others_pass []
                    "With relaxed order, later events of a key pass one that is tried again."
            }
            outages {
                a_busy_event_is_delayed []
                    "A copy of an event that another process runs is delayed, and acknowledged only after the outcome."
                a_shutdown_returns_what_waits []
                    "A shutdown waits for running handlers, and gives back what waits."
                a_store_that_is_down_loses_nothing []
                    "While the store is down nothing is acknowledged; afterwards every event runs, once."
                an_outcome_that_cannot_be_recorded_is_not_acked []
                    "An event is not acknowledged while the store does not take its outcome, and does not run again."
                a_dead_letter_sink_that_is_down_loses_nothing []
                    "A failed event is neither recorded nor settled while its dead letter cannot be published."
                a_broker_restart_under_load_loses_nothing [Restarts]
                    "A restart of the broker under load loses no event, and runs none twice."
            }
            chaos {
                every_event_has_one_outcome []
                    "With copies, failures and killed processes, every event has one outcome and no run without a reason."
            }
        }
    };
}

type PromiseCheck = fn(Arc<dyn SourceFixture>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// One promise of every source, or of a consumer on it.
#[derive(Clone, Copy)]
pub struct SourcePromise {
    name: &'static str,
    says: &'static str,
    needs: &'static [SourceAbility],
    check: PromiseCheck,
}

impl SourcePromise {
    /// Its name: subject and function, such as `settling::an_acked_message_never_comes_again`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The promise, in a sentence.
    #[must_use]
    pub const fn says(&self) -> &'static str {
        self.says
    }

    /// The broker that it needs.
    #[must_use]
    pub fn broker(&self) -> Broker {
        match self.needs.contains(&SourceAbility::Restarts) {
            true => Broker::Own,
            false => Broker::Shared,
        }
    }

    /// True if it needs a whole consumer, which has threads and clocks of its own.
    #[must_use]
    pub fn runs_a_consumer(&self) -> bool {
        let source_alone = ["handover::", "settling::", "deadlines::", "connections::"];
        !source_alone.iter().any(|subject| self.name.starts_with(subject))
    }

    /// The ability that this promise needs and the fixture does not have.
    #[must_use]
    pub fn missing_ability(&self, fixture: &dyn SourceFixture) -> Option<SourceAbility> {
        self.needs.iter().copied().find(|ability| fixture.unsupported().contains(ability))
    }

    /// Checks this promise on a fresh fixture.
    ///
    /// # Panics
    ///
    /// If it is broken.
    pub async fn check(&self, fixture: Arc<dyn SourceFixture>) {
        let _name_on_panic = NameOnPanic(self.name);
        (self.check)(fixture).await;
    }
}

impl fmt::Debug for SourcePromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! array {
    ([] $($subject:ident { $($promise:ident [$($ability:ident)*] $says:literal)* })*) => {
        &[$($(SourcePromise {
            name: concat!(stringify!($subject), "::", stringify!($promise)),
            says: $says,
            needs: &[$(SourceAbility::$ability),*],
            check: |fixture| Box::pin($subject::$promise(fixture)),
        }),*),*]
    };
}

/// Every promise, in the order in which a reader would check them.
pub const ALL: &[SourcePromise] = __for_each_source_promise!([array][]);
