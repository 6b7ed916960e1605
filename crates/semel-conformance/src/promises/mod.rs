//! The promises, one function each, and the one list that names them all.

pub mod abandon;
pub mod batch;
pub mod claim;
pub mod complete;
pub mod concurrency;
pub mod erase;
pub mod expiry;
pub mod lost_reply;
pub mod mismatch;
pub mod operator;
pub mod outcome;
pub mod purge;
pub mod reading;
pub mod release;
pub mod renew;
pub mod takeover;

use std::{fmt, pin::Pin, thread};

use semel_core::Store;

use crate::Time;

/// Hands the list of all promises to another macro. The only place that names them.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_promise {
    ([$($then:tt)*] $with:tt) => {
        $($then)* ! { $with
            claim {
                a_first_claim_is_granted
                a_first_claim_writes_the_record
                a_first_claim_sets_the_times
                a_live_lease_answers_busy
                a_token_rises_with_every_grant
                a_completed_key_replays
                a_replay_has_its_age
                an_unknown_key_stays_unknown
                a_dead_key_stays_dead
                attempts_end_at_the_cap
                keys_that_differ_in_one_bit_are_two_keys
                extreme_keys_work
            }
            lost_reply {
                a_lost_reply_is_granted_again
                a_lost_reply_rearms_the_lease
                a_lost_reply_on_hold_is_granted_again
                a_lost_reply_does_not_restart_the_run
                a_lost_reply_keeps_its_terms
                an_abandoned_claim_is_not_revived
                a_late_copy_after_a_takeover_is_busy
            }
            mismatch {
                another_fingerprint_is_refused_in_progress
                another_fingerprint_is_refused_after_the_lease
                another_fingerprint_is_refused_after_the_lease_on_hold
                another_fingerprint_is_refused_when_completed
                another_fingerprint_is_refused_when_unknown
                another_fingerprint_is_refused_when_dead
                another_fingerprint_is_refused_before_a_retry
                another_fingerprint_is_refused_for_the_owner_too
            }
            takeover {
                a_lapsed_lease_is_taken_over
                a_lapsed_lease_is_contested_first
                a_grace_period_is_not_extended
                a_contender_does_not_choose_the_grace_period
                a_renewal_ends_the_contest
                a_repeated_claim_ends_the_contest
                a_settlement_ends_the_contest
                a_new_owner_is_contested_first
                a_busy_answer_extends_nothing
                a_lapsed_lease_on_hold_becomes_unknown
                a_lapsed_lease_at_the_cap_is_dead
                a_contenders_hold_is_not_used
                a_contenders_rerun_is_not_used
                a_contenders_cap_is_not_used
                a_contenders_lease_is_not_used
                terms_of_the_first_claim_outlive_a_release
                lease_and_retention_are_the_current_owners
            }
            renew {
                the_owner_renews
                a_renewed_lease_holds_others_off
                a_renewed_lease_lapses_again
                another_nonce_cannot_renew
                another_token_cannot_renew
                a_lease_is_not_renewed_beyond_max_run
                a_renewal_does_not_restart_max_run
                a_stale_owner_cannot_renew
                an_abandoned_lease_cannot_be_renewed
                only_work_in_progress_is_renewed
                a_renewal_makes_no_record
            }
            abandon {
                an_abandoned_key_lapses_after_its_backoff
                an_abandoned_key_without_backoff_is_free
                a_backoff_may_outlast_the_lease
                an_abandoned_key_keeps_its_record
                an_abandoned_key_on_hold_is_unknown
                an_abandoned_key_can_be_completed
                an_abandoned_key_can_be_released
                only_the_owner_abandons
                only_work_in_progress_is_abandoned
                an_abandonment_makes_no_record
            }
            complete {
                the_owner_records_its_outcome
                a_late_completion_counts
                an_unknown_key_is_completed_by_its_owner
                a_dead_key_is_completed_by_its_lost_owner
                a_released_key_that_died_is_not_completed
                a_late_copy_that_finds_a_dead_key_owns_nothing
                the_first_outcome_stands
                a_completion_makes_no_record
                another_nonce_cannot_complete
                another_token_cannot_complete
                a_stale_owner_cannot_complete
                a_superseded_owner_learns_the_outcome
                a_released_key_is_not_completed
                a_key_held_by_a_retry_is_completed_by_its_owner
            }
            outcome {
                a_binary_body_comes_back
                an_empty_body_comes_back
                a_head_comes_back
                a_failure_comes_back
                an_omitted_body_comes_back
                a_large_body_comes_back
                labels_come_back
                digests_behind_an_id_come_back
                a_record_without_labels_has_none
            }
            release {
                a_release_without_effect_unpins
                a_release_for_a_retry_stays_pinned
                a_dirty_key_is_not_unpinned
                a_retry_on_hold_becomes_unknown
                a_release_without_effect_opens_a_held_key
                an_unknown_key_is_released_without_effect
                an_unknown_key_is_not_released_for_a_retry
                a_late_release_counts
                only_the_owner_releases
                a_released_key_has_no_owner
                a_late_copy_of_a_released_claim_is_not_granted
                a_late_copy_does_not_make_a_key_dead
                a_completed_key_is_not_released
                a_dead_key_is_not_released
                a_release_makes_no_record
            }
            operator {
                an_unknown_key_is_resolved_to_an_outcome
                a_dead_key_is_resolved_to_an_outcome
                a_lapsed_key_is_resolved
                a_contested_key_is_not_resolved
                a_reopened_key_stays_pinned
                an_attested_key_is_unpinned
                a_reopened_dead_key_has_its_attempts_again
                only_the_record_that_the_operator_saw_is_resolved
                a_decision_does_not_apply_to_a_later_record
                only_stuck_keys_are_resolved
                a_resolution_makes_no_record
                a_former_owner_can_do_nothing
            }
            erase {
                any_record_is_erased
                the_owner_of_an_erased_key_is_superseded
                an_erasure_makes_no_record
                a_key_without_an_owner_is_forgotten
                a_key_that_may_have_an_effect_is_not_forgotten
                nothing_is_forgotten_twice
            }
            expiry {
                an_outcome_is_kept_from_completion
                a_failure_is_kept_for_its_own_retention
                a_success_is_kept_for_its_own_retention
                a_released_key_expires
                a_dead_key_expires
                a_tombstone_expires
                a_lost_claim_expires
                a_claim_on_hold_never_expires
                an_unknown_key_never_expires
                an_expired_record_is_absent_for_every_step
                a_new_record_inherits_nothing
            }
            purge {
                purge_deletes_what_expired
                purge_leaves_the_rest
                purge_puts_lost_owners_on_hold
                purge_honours_its_limit
            }
            batch {
                claims_are_answered_in_order
                a_refused_claim_does_not_affect_its_batch
                one_of_two_claims_of_a_key_in_a_batch_is_granted
                a_claim_twice_in_a_batch_is_one_grant
                a_claim_in_a_batch_sees_the_claims_before_it
                renewals_are_answered_in_order
                completions_are_answered_in_order
                releases_are_answered_in_order
                an_empty_batch_is_answered
                a_batch_lives_like_single_steps
            }
            reading {
                an_absent_key_has_no_record
                a_sighting_has_store_time
                pages_cover_everything_once
                a_list_filters_by_state
                a_list_filters_by_namespace
                a_list_without_filters_has_everything
                a_limit_of_zero_lists_nothing
                expired_records_are_not_listed
                a_tombstone_leaves_its_namespace
                statistics_count_our_records
            }
            concurrency {
                one_of_many_first_claims_is_granted
                one_of_many_takes_over
                one_of_many_is_granted_a_released_key
                copies_of_one_claim_are_one_grant
                one_of_two_outcomes_stands
                a_stale_owner_never_wins
                completion_and_takeover_exclude_each_other
                renewal_and_takeover_exclude_each_other
                every_grant_has_its_own_token
                batches_in_opposite_order_do_not_deadlock
            }
        }
    };
}

type PromiseCheck =
    for<'a> fn(&'a dyn Store, &'a dyn Time) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One promise of every store.
#[derive(Clone, Copy)]
pub struct Promise {
    name: &'static str,
    check: PromiseCheck,
}

impl Promise {
    /// Its name: subject and function, such as `claim::a_first_claim_is_granted`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the store against this promise.
    ///
    /// # Panics
    ///
    /// If the store breaks it.
    pub async fn check(&self, store: &dyn Store, time: &dyn Time) {
        let _name_on_panic = NameOnPanic(self.name);
        (self.check)(store, time).await;
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Prints the name of the broken promise during a panic.
pub(crate) struct NameOnPanic(pub(crate) &'static str);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("broken promise: {}", self.0);
        }
    }
}

macro_rules! array {
    ([] $($subject:ident { $($promise:ident)* })*) => {
        &[$($(Promise {
            name: concat!(stringify!($subject), "::", stringify!($promise)),
            check: |store, time| Box::pin($subject::$promise(store, time)),
        }),*),*]
    };
}

/// Every promise, in the order in which a reader would check them.
pub const ALL: &[Promise] = __for_each_promise!([array][]);

/// Checks a store against every promise, one after the other.
///
/// # Panics
///
/// At the first promise that the store breaks.
pub async fn store(store: &dyn Store, time: &dyn Time) {
    for promise in ALL {
        promise.check(store, time).await;
    }
}
