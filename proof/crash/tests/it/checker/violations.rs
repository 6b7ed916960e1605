//! The checker finds what is wrong, calls it by its name, and lets good histories pass.

use std::collections::BTreeSet;

use semel_crash::{
    Answer, Detail, Hex, KeyId, Op,
    check::{Floor, Invariant::*, Violation},
};

use super::history_builder::*;

#[test]
fn i1_a_key_on_hold_that_took_effect_twice_is_reported() {
    let tale = Tale::of(HOLD).granted(owner(1)).effect(owner(1)).later(90);
    let tale = tale.granted(owner(2)).effect(owner(2)).dumped(Answer::Unknown, 2, None);
    assert!(tale.broken().contains(&I1));
}

#[test]
fn i3_a_token_that_ran_twice_is_reported() {
    let tale = good(RERUN).effect(owner(1)).dumped(Answer::Completed, 1, Some(7));
    assert_eq!(tale.broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_takeover_within_the_lease_is_reported() {
    let early = |tale: Tale| {
        let tale = tale.granted(owner(2)).effect(owner(2));
        tale.completes(owner(2), 7, Answer::Recorded).dumped(Answer::Completed, 2, Some(7))
    };
    let after_claim = Tale::of(RERUN).granted(owner(1)).effect(owner(1)).later(30);
    assert_eq!(early(after_claim).broken(), BTreeSet::from([I3]));
    let after_renewal = Tale::of(RERUN).granted(owner(1)).effect(owner(1)).later(60);
    let after_renewal = after_renewal.owner_step(owner(1), Op::Renew, Answer::Extended).later(30);
    assert_eq!(early(after_renewal).broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_killed_owner_of_a_shared_store_is_left_its_lease_too() {
    let next = Who { process: 2, ..owner(2) };
    let mut tale = Tale::of(RERUN).granted(owner(1)).dies(1).granted(next);
    tale = tale.completes(next, 7, Answer::Recorded).dumped(Answer::Completed, 2, Some(7));
    tale.evidence.rules.frees_at_open = false;
    assert_eq!(tale.broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_wait_for_an_owner_that_was_dead_before_the_store_was_opened_is_reported() {
    let told_to_wait = |tale: Tale| tale.call(2, Op::Claim, asked(owner(5)), detail(Answer::Busy));
    let ends = |tale: Tale| {
        let next = Who { process: 2, ..owner(2) };
        let tale = tale.later(90).granted(next).effect(next);
        tale.completes(next, 7, Answer::Recorded).dumped(Answer::Completed, 2, Some(7))
    };
    let dead = || Tale::of(RERUN).granted(owner(1)).effect(owner(1)).dies(1);
    assert_eq!(ends(told_to_wait(dead())).broken(), BTreeSet::from([I3]));
    let mut shared = ends(told_to_wait(dead()));
    shared.evidence.rules.frees_at_open = false;
    assert_eq!(shared.broken(), NONE);
    let alive = Tale::of(RERUN).granted(owner(1)).effect(owner(1));
    assert_eq!(ends(told_to_wait(alive)).broken(), NONE);
    // An open claim of the same process may be the owner.
    let own = dead().open(2, Op::Claim, asked(Who { process: 2, ..owner(6) }));
    let own = told_to_wait(own).dumped(Answer::Unknown, 2, None);
    assert!(!own.broken().contains(&I3));
}

#[test]
fn i4_two_recorded_outcomes_are_reported() {
    let tale = Tale::of(RERUN)
        .granted(owner(1))
        .later(90)
        .granted(owner(2))
        .completes(owner(2), 8, Answer::Recorded)
        .completes(owner(1), 7, Answer::Recorded)
        .dumped(Answer::Completed, 2, Some(8));
    assert!(tale.broken().contains(&I4));
}

#[test]
fn i5_a_replay_of_something_else_is_reported() {
    let tale = good(RERUN).replays(8).dumped(Answer::Completed, 1, Some(7));
    assert!(tale.broken().contains(&I5));
}

#[test]
fn i6_an_acknowledged_outcome_that_is_gone_is_reported_with_the_lines_of_its_key() {
    let found = good(RERUN).findings();
    let lost = found.violations.iter().find(|it| it.what.contains("lost outcome")).unwrap();
    assert_eq!((lost.invariant, lost.key), (I6, Some(RERUN)));
    let text = lost.to_string();
    assert!(text.contains("BROKEN I6: an acknowledged claim or outcome is never lost"), "{text}");
    assert!(text.contains("key a/k0 (Rerun)") && text.contains("answer=recorded"), "{text}");
    assert!(text.contains("ledger") && text.contains("dump absent"), "{text}");
}

#[test]
fn i6_an_acknowledged_outcome_that_is_another_at_the_end_is_reported() {
    let tale = good(RERUN).dumped(Answer::Completed, 1, Some(8));
    assert!(tale.broken().contains(&I6));
}

#[test]
fn i6_a_brief_outcome_is_missed_only_within_its_retention() {
    assert!(good(BRIEF).later(50).broken().contains(&I6));
    assert_eq!(good(BRIEF).later(150).broken(), NONE);
}

#[test]
fn i6_a_claim_that_ran_and_is_gone_is_reported() {
    let tale = Tale::of(HOLD).granted(owner(1)).effect(owner(1)).dies(1);
    let found = tale.findings().violations;
    assert!(found.iter().any(|it| it.invariant == I6 && it.what.contains("lost claim")));
}

#[test]
fn i7_a_claim_granted_after_the_outcome_was_told_is_reported() {
    let tale = good(RERUN).later(90).granted(owner(2)).dumped(Answer::Completed, 2, Some(7));
    assert!(tale.broken().contains(&I7));
}

#[test]
fn i7_a_brief_outcome_may_not_go_back_before_its_retention() {
    let tale = good(BRIEF).later(10).granted(Who { nonce: 200, ..owner(1) });
    assert!(tale.dumped(Answer::InProgress, 1, None).broken().contains(&I7));
}

#[test]
fn i8_a_token_that_falls_is_reported() {
    let tale = Tale::of(RERUN).granted(owner(2)).later(90).granted(owner(1));
    assert!(tale.dumped(Answer::Unknown, 2, None).broken().contains(&I8));
}

#[test]
fn i8_two_owners_of_one_token_are_reported() {
    let twin = Who { nonce: 200, ..owner(1) };
    let tale = Tale::of(RERUN).granted(owner(1)).granted(twin);
    assert!(tale.dumped(Answer::Unknown, 1, None).broken().contains(&I8));
}

#[test]
fn i8_a_nonce_that_repeats_is_reported() {
    let again = Who { token: 2, ..owner(1) };
    let tale = Tale::of(RERUN).granted(owner(1)).later(90).granted(again);
    assert!(tale.dumped(Answer::Unknown, 2, None).broken().contains(&I8));
}

/// Who was replaced may be granted the key again with its old nonce, but somebody must have replaced it.
#[test]
fn i8_a_nonce_that_is_granted_a_later_token_needs_others_in_between() {
    let again = Who { token: 3, ..owner(1) };
    let ends = |tale: Tale| {
        let tale = tale.later(90).granted(again).effect(again);
        tale.completes(again, 7, Answer::Recorded).dumped(Answer::Completed, 3, Some(7))
    };
    let replaced = Tale::of(RERUN).granted(owner(1)).later(90).granted(owner(2));
    assert_eq!(ends(replaced).broken(), NONE);
    assert_ne!(ends(Tale::of(RERUN).granted(owner(1))).broken(), NONE);
    let other_key = Tale::of(RERUN).granted(owner(1)).on(KeyId(2)).granted(again);
    assert!(other_key.dumped(Answer::Unknown, 3, None).broken().contains(&I8));
}

#[test]
fn i9_a_replaced_owner_that_is_still_heard_is_reported() {
    let steps = [
        (Op::Renew, Answer::Extended),
        (Op::Release, Answer::Open),
        (Op::Abandon, Answer::Lapsing),
        (Op::Complete, Answer::Recorded),
    ];
    for (op, answer) in steps {
        let tale = Tale::of(RERUN).granted(owner(1)).later(90).granted(owner(2));
        let tale = tale.owner_step(owner(1), op, answer);
        assert!(tale.dumped(Answer::Unknown, 2, None).broken().contains(&I9), "{op:?}");
    }
}

#[test]
fn i10_a_run_without_a_grant_for_its_payload_is_reported() {
    let tale = Tale::of(RERUN).granted(owner(1)).effect(Who { payload: 1, ..owner(1) });
    assert!(tale.dumped(Answer::Unknown, 1, None).broken().contains(&I10));
}

#[test]
fn i10_a_grant_for_another_payload_after_an_effect_is_reported() {
    let other = Who { payload: 1, ..owner(2) };
    let tale = Tale::of(RERUN).granted(owner(1)).effect(owner(1)).later(90).granted(other);
    assert!(tale.dumped(Answer::Unknown, 2, None).broken().contains(&I10));
}

#[test]
fn i10_an_answer_to_another_payload_is_reported() {
    let told =
        Detail { fingerprint: Some(1), digest: Some(Hex(7)), stored: true, ..Detail::default() };
    let tale = good(RERUN).told(told).dumped(Answer::Completed, 1, Some(7));
    assert_eq!(tale.broken(), BTreeSet::from([I10]));
}

#[test]
fn i11_the_answer_of_another_tenant_is_reported() {
    let told = Detail {
        fingerprint: Some(0),
        digest: Some(Hex(7)),
        of: Some(KeyId(1)),
        stored: true,
        ..Detail::default()
    };
    let tale = good(RERUN).told(told).dumped(Answer::Completed, 1, Some(7));
    assert_eq!(tale.broken(), BTreeSet::from([I11]));
}

#[test]
fn i13_an_attempt_over_the_cap_is_reported() {
    let tale = (1..=4).fold(Tale::of(CAPPED), |tale, n| tale.granted(owner(n)).later(90));
    let tale = tale.completes(owner(4), 7, Answer::Recorded);
    assert!(tale.dumped(Answer::Completed, 4, Some(7)).broken().contains(&I13));
}

#[test]
fn i14_a_key_that_never_comes_to_an_end_is_reported() {
    for state in [Answer::InProgress, Answer::Open] {
        let tale = Tale::of(RERUN).granted(owner(1)).dumped(state, 1, None);
        assert!(tale.broken().contains(&I14), "{state:?}");
    }
}

#[test]
fn i15_steps_that_fit_into_no_order_are_reported() {
    let busy_before_anybody_came =
        Tale::of(RERUN).call(1, Op::Claim, asked(owner(1)), detail(Answer::Busy));
    assert_eq!(busy_before_anybody_came.broken(), BTreeSet::from([I15]));
    let gone_while_owned = Tale::of(RERUN)
        .granted(owner(1))
        .call(1, Op::Get, Detail::default(), detail(Answer::Absent))
        .completes(owner(1), 7, Answer::Recorded)
        .dumped(Answer::Completed, 1, Some(7));
    assert_eq!(gone_while_owned.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_a_dump_that_no_order_ends_with_is_reported() {
    let tale = Tale::of(RERUN).granted(owner(1)).dumped(Answer::Dead, 1, None);
    assert_eq!(tale.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_an_outcome_that_comes_back_after_it_was_forgotten_or_erased_is_reported() {
    let steps = [(Op::Forget, Answer::Forgotten), (Op::Erase, Answer::Erased)];
    for (op, answer) in steps {
        let wiped = || good(RERUN).call(1, op, Detail::default(), detail(answer));
        let told_again = wiped().replays(7).dumped(Answer::Completed, 1, Some(7));
        assert_eq!(told_again.broken(), BTreeSet::from([I15]), "{op:?}");
        let there_at_the_end = wiped().dumped(Answer::Completed, 1, Some(7));
        assert_eq!(there_at_the_end.broken(), BTreeSet::from([I15]), "{op:?}");
    }
}

#[test]
fn i15_an_outcome_that_is_lost_although_nobody_could_forget_it_is_reported() {
    let refused = Tale::of(RERUN)
        .granted(owner(1))
        .call(1, Op::Forget, Detail::default(), detail(Answer::Refused))
        .completes(owner(1), 7, Answer::Recorded);
    assert!(refused.broken().is_superset(&BTreeSet::from([I6, I15])));
    let owned = Tale::of(RERUN).granted(owner(1)).call(
        1,
        Op::Forget,
        Detail::default(),
        detail(Answer::Forgotten),
    );
    assert_eq!(owned.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_more_orders_than_can_be_searched_are_reported() {
    let claim = |n| Who { process: 1, ..owner(n) };
    let tale = (1..=20).fold(Tale::of(RERUN), |tale, n| tale.open(1, Op::Claim, asked(claim(n))));
    let found = tale.dumped(Answer::Completed, 1, Some(7)).findings().violations;
    let undecided = |it: &Violation| it.invariant == I15 && it.what.contains("too many orders");
    assert!(found.iter().any(undecided), "{found:?}");
}

/// Answers that change nothing are taken as early as they fit: that must not make room for one that fits
/// nowhere.
#[test]
fn i15_an_answer_that_was_true_only_before_it_was_asked_for_is_reported() {
    let late = |op, asked, told| {
        let tale = good(RERUN).call(1, op, asked, told);
        tale.dumped(Answer::Completed, 1, Some(7)).broken()
    };
    let busy = late(Op::Claim, asked(owner(5)), detail(Answer::Busy));
    assert!(busy.contains(&I15), "{busy:?}");
    let other = asked(Who { payload: 1, ..owner(5) });
    assert_eq!(late(Op::Claim, other, detail(Answer::Mismatch)), NONE);
    let mismatch = late(Op::Claim, asked(owner(5)), detail(Answer::Mismatch));
    assert!(mismatch.contains(&I15), "{mismatch:?}");
    let owned = Detail { token: Some(1), ..detail(Answer::InProgress) };
    let seen = late(Op::Get, Detail::default(), owned);
    assert!(seen.contains(&I15), "{seen:?}");
    let missing = late(Op::Forget, Detail::default(), detail(Answer::Missing));
    assert!(missing.contains(&I15), "{missing:?}");
    let extended = late(Op::Renew, asked(owner(1)), detail(Answer::Extended));
    assert!(extended.contains(&I15), "{extended:?}");
}

/// The same while calls are open that might have changed anything but this.
#[test]
fn i15_open_calls_excuse_only_what_they_can_have_done() {
    let claim = |tale: Tale, n| tale.given_up(1, Op::Claim, asked(Who { nonce: n, ..owner(1) }));
    let away = || (1000..1030).fold(Tale::of(RERUN).shared(), claim);
    let ends = |tale: Tale| {
        let next = Who { nonce: 5000, ..owner(31) };
        let tale = tale.later(90).granted(next).effect(next).completes(next, 7, Answer::Recorded);
        tale.dumped(Answer::Completed, 31, Some(7)).broken()
    };
    let told = |tale: Tale, asked, answer| tale.call(1, Op::Claim, asked, detail(answer));
    let other = asked(Who { payload: 1, ..owner(5) });
    assert_eq!(ends(away()), NONE);
    assert_eq!(ends(told(away(), other, Answer::Mismatch)), NONE);
    // All of them asked for this payload.
    assert_eq!(ends(told(away(), asked(owner(5)), Answer::Mismatch)), BTreeSet::from([I15]));
    // None of them was to record anything.
    assert_eq!(ends(away().replays(7)), BTreeSet::from([I15]));
    // Once the key is owned it is not absent again.
    let busy = || told(away(), asked(owner(5)), Answer::Busy);
    assert_eq!(ends(busy()), NONE);
    let absent = busy().call(1, Op::Get, Detail::default(), detail(Answer::Absent));
    assert_eq!(ends(absent), BTreeSet::from([I15]));
}

#[test]
fn i15_an_outcome_that_its_owner_sent_after_it_was_replaced_is_reported() {
    let late = Detail { digest: Some(Hex(6)), ..asked(owner(1)) };
    let tale = Tale::of(RERUN).shared().granted(owner(1)).later(90).granted(owner(2));
    let tale = tale.given_up(1, Op::Complete, late).replays(6);
    assert!(tale.dumped(Answer::Completed, 2, Some(6)).broken().contains(&I15));
}

/// A lost reply is asked for again with the same nonce. However often, it is one owner (T2).
#[test]
fn i15_a_claim_that_was_sent_again_and_again_uses_up_one_token() {
    let sent = |times, token| {
        let claim = |tale: Tale, _| tale.given_up(1, Op::Claim, asked(owner(1)));
        let tale = (0..times).fold(Tale::of(RERUN).shared(), claim).later(90);
        let next = Who { nonce: 5000, ..owner(token) };
        let tale = tale.granted(next).effect(next).completes(next, 7, Answer::Recorded);
        tale.dumped(Answer::Completed, token, Some(7)).broken()
    };
    assert_eq!(sent(4, 1), NONE);
    assert_eq!(sent(4, 2), NONE);
    assert_eq!(sent(4, 3), BTreeSet::from([I15]));
}

#[test]
fn i15_a_call_may_outlive_its_process_in_a_shared_store_only() {
    for (frees_at_open, broken) in [(true, BTreeSet::from([I15])), (false, NONE)] {
        let asked = Detail { digest: Some(Hex(7)), ..asked(owner(1)) };
        let owned = Detail { token: Some(1), ..detail(Answer::InProgress) };
        let mut tale = Tale::of(RERUN)
            .granted(owner(1))
            .open(1, Op::Complete, asked)
            .dies(1)
            .call(2, Op::Get, Detail::default(), owned)
            .dumped(Answer::Completed, 1, Some(7));
        tale.evidence.rules.frees_at_open = frees_at_open;
        assert_eq!(tale.broken(), broken);
    }
}

#[test]
fn i15_a_claim_that_arrives_after_the_server_it_was_sent_to_had_died_is_reported() {
    let tale = Tale::of(RERUN).shared().given_up(1, Op::Claim, asked(owner(1))).server_dies();
    // Not there yet, and nobody is left who could bring it.
    let tale = tale.call(1, Op::Get, Detail::default(), detail(Answer::Absent)).later(90);
    let tale = tale.granted(owner(2)).completes(owner(2), 7, Answer::Recorded);
    assert!(tale.dumped(Answer::Completed, 2, Some(7)).broken().contains(&I15));
}

#[test]
fn i16_a_run_in_which_too_little_happened_is_reported() {
    let mut tale = good(RERUN).dumped(Answer::Completed, 1, Some(7));
    tale.evidence.rules.floor = Floor { kills: 1, effects: 1, ..Floor::default() };
    let found = tale.findings().violations;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].invariant, found[0].what.as_str()), (I16, "kills: 0 of at least 1"));
}
