//! Histories with one violation: the checker reports the invariant that is broken.

use std::collections::BTreeSet;

use semel_crash::{
    Detail, Hex, KeyId, Op, ReplyKind,
    check::{Floor, Invariant::*, Violation},
};

use super::history_builder::*;

#[test]
fn i1_a_key_on_hold_that_took_effect_twice_is_reported() {
    let history = HistoryBuilder::of(HOLD).granted(owner(1)).effect(owner(1)).later(120);
    let history = history.granted(owner(2)).effect(owner(2)).dumped(ReplyKind::Unknown, 2, None);
    assert!(history.broken().contains(&I1));
}

#[test]
fn i3_a_token_that_ran_twice_is_reported() {
    let history = good(RERUN).effect(owner(1)).dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(history.broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_takeover_within_the_lease_is_reported() {
    let early = |history: HistoryBuilder| {
        let history = history.granted(owner(2)).effect(owner(2));
        history.completes(owner(2), 7, ReplyKind::Recorded).dumped(ReplyKind::Completed, 2, Some(7))
    };
    let after_claim = HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1)).later(30);
    assert_eq!(early(after_claim).broken(), BTreeSet::from([I3]));
    let in_grace = HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1)).later(80);
    assert_eq!(early(in_grace).broken(), BTreeSet::from([I3]));
    let after_renewal = HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1)).later(60);
    let after_renewal =
        after_renewal.owner_step(owner(1), Op::Renew, ReplyKind::Extended).later(30);
    assert_eq!(early(after_renewal).broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_killed_owner_of_a_shared_store_keeps_its_lease() {
    let next = Claimant { process: 2, ..owner(2) };
    let mut history = HistoryBuilder::of(RERUN).granted(owner(1)).dies(1).granted(next);
    history =
        history.completes(next, 7, ReplyKind::Recorded).dumped(ReplyKind::Completed, 2, Some(7));
    history.evidence.rules.frees_at_open = false;
    assert_eq!(history.broken(), BTreeSet::from([I3]));
}

#[test]
fn i3_a_wait_for_an_owner_that_was_dead_before_the_store_was_opened_is_reported() {
    let busy_reply = |history: HistoryBuilder| {
        history.call(2, Op::Claim, request(owner(5)), detail(ReplyKind::Busy))
    };
    let ends = |history: HistoryBuilder| {
        let next = Claimant { process: 2, ..owner(2) };
        let history = history.later(120).granted(next).effect(next);
        history.completes(next, 7, ReplyKind::Recorded).dumped(ReplyKind::Completed, 2, Some(7))
    };
    let dead = || HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1)).dies(1);
    assert_eq!(ends(busy_reply(dead())).broken(), BTreeSet::from([I3]));
    let mut shared = ends(busy_reply(dead()));
    shared.evidence.rules.frees_at_open = false;
    assert_eq!(shared.broken(), NONE);
    let alive = HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1));
    assert_eq!(ends(busy_reply(alive)).broken(), NONE);
    // An open claim of the same process may be the owner.
    let own = dead().open(2, Op::Claim, request(Claimant { process: 2, ..owner(6) }));
    let own = busy_reply(own).dumped(ReplyKind::Unknown, 2, None);
    assert!(!own.broken().contains(&I3));
}

#[test]
fn i4_two_recorded_outcomes_are_reported() {
    let history = HistoryBuilder::of(RERUN)
        .granted(owner(1))
        .later(120)
        .granted(owner(2))
        .completes(owner(2), 8, ReplyKind::Recorded)
        .completes(owner(1), 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 2, Some(8));
    assert!(history.broken().contains(&I4));
}

#[test]
fn i5_a_replay_of_another_outcome_is_reported() {
    let history = good(RERUN).replays(8).dumped(ReplyKind::Completed, 1, Some(7));
    assert!(history.broken().contains(&I5));
}

#[test]
fn i6_a_lost_outcome_is_reported_with_the_lines_of_its_key() {
    let found = good(RERUN).findings();
    let lost = found.violations.iter().find(|it| it.what.contains("lost outcome")).unwrap();
    assert_eq!((lost.invariant, lost.key), (I6, Some(RERUN)));
    let text = lost.to_string();
    assert!(text.contains("BROKEN I6: an acknowledged claim or outcome is never lost"), "{text}");
    assert!(text.contains("key a/k0 (Rerun)") && text.contains("reply=recorded"), "{text}");
    assert!(text.contains("ledger") && text.contains("dump absent"), "{text}");
}

#[test]
fn i6_an_acknowledged_outcome_that_differs_at_the_end_is_reported() {
    let history = good(RERUN).dumped(ReplyKind::Completed, 1, Some(8));
    assert!(history.broken().contains(&I6));
}

#[test]
fn i6_a_brief_outcome_may_be_absent_only_after_its_retention() {
    assert!(good(BRIEF).later(50).broken().contains(&I6));
    assert_eq!(good(BRIEF).later(150).broken(), NONE);
}

#[test]
fn i6_a_lost_claim_that_ran_is_reported() {
    let history = HistoryBuilder::of(HOLD).granted(owner(1)).effect(owner(1)).dies(1);
    let found = history.findings().violations;
    assert!(found.iter().any(|it| it.invariant == I6 && it.what.contains("lost claim")));
}

#[test]
fn i7_a_grant_after_an_acknowledged_outcome_is_reported() {
    let history = good(RERUN).later(120).granted(owner(2)).dumped(ReplyKind::Completed, 2, Some(7));
    assert!(history.broken().contains(&I7));
}

#[test]
fn i7_a_brief_outcome_may_not_disappear_within_its_retention() {
    let history = good(BRIEF).later(10).granted(Claimant { nonce: 200, ..owner(1) });
    assert!(history.dumped(ReplyKind::InProgress, 1, None).broken().contains(&I7));
}

#[test]
fn i8_a_token_that_falls_is_reported() {
    let history = HistoryBuilder::of(RERUN).granted(owner(2)).later(120).granted(owner(1));
    assert!(history.dumped(ReplyKind::Unknown, 2, None).broken().contains(&I8));
}

#[test]
fn i8_two_owners_of_one_token_are_reported() {
    let twin = Claimant { nonce: 200, ..owner(1) };
    let history = HistoryBuilder::of(RERUN).granted(owner(1)).granted(twin);
    assert!(history.dumped(ReplyKind::Unknown, 1, None).broken().contains(&I8));
}

#[test]
fn i8_a_nonce_that_repeats_is_reported() {
    let again = Claimant { token: 2, ..owner(1) };
    let history = HistoryBuilder::of(RERUN).granted(owner(1)).later(120).granted(again);
    assert!(history.dumped(ReplyKind::Unknown, 2, None).broken().contains(&I8));
}

/// A replaced owner may be granted the key again with its old nonce, but only if another claim had it in between.
#[test]
fn i8_a_nonce_is_granted_a_later_token_only_after_another_owner() {
    let again = Claimant { token: 3, ..owner(1) };
    let ends = |history: HistoryBuilder| {
        let history = history.later(120).granted(again).effect(again);
        history.completes(again, 7, ReplyKind::Recorded).dumped(ReplyKind::Completed, 3, Some(7))
    };
    let replaced = HistoryBuilder::of(RERUN).granted(owner(1)).later(120).granted(owner(2));
    assert_eq!(ends(replaced).broken(), NONE);
    assert_ne!(ends(HistoryBuilder::of(RERUN).granted(owner(1))).broken(), NONE);
    let other_key = HistoryBuilder::of(RERUN).granted(owner(1)).on(KeyId(2)).granted(again);
    assert!(other_key.dumped(ReplyKind::Unknown, 3, None).broken().contains(&I8));
}

#[test]
fn i9_an_accepted_step_of_a_replaced_owner_is_reported() {
    let steps = [
        (Op::Renew, ReplyKind::Extended),
        (Op::Release, ReplyKind::Open),
        (Op::Abandon, ReplyKind::Lapsing),
        (Op::Complete, ReplyKind::Recorded),
    ];
    for (op, answer) in steps {
        let history = HistoryBuilder::of(RERUN).granted(owner(1)).later(120).granted(owner(2));
        let history = history.owner_step(owner(1), op, answer);
        assert!(history.dumped(ReplyKind::Unknown, 2, None).broken().contains(&I9), "{op:?}");
    }
}

#[test]
fn i10_a_run_without_a_grant_for_its_payload_is_reported() {
    let history =
        HistoryBuilder::of(RERUN).granted(owner(1)).effect(Claimant { payload: 1, ..owner(1) });
    assert!(history.dumped(ReplyKind::Unknown, 1, None).broken().contains(&I10));
}

#[test]
fn i10_a_grant_for_another_payload_after_an_effect_is_reported() {
    let other = Claimant { payload: 1, ..owner(2) };
    let history =
        HistoryBuilder::of(RERUN).granted(owner(1)).effect(owner(1)).later(120).granted(other);
    assert!(history.dumped(ReplyKind::Unknown, 2, None).broken().contains(&I10));
}

#[test]
fn i10_the_outcome_of_another_payload_is_reported() {
    let reply =
        Detail { fingerprint: Some(1), digest: Some(Hex(7)), stored: true, ..Detail::default() };
    let history = good(RERUN).run_reply(reply).dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(history.broken(), BTreeSet::from([I10]));
}

#[test]
fn i11_the_outcome_of_another_tenant_is_reported() {
    let reply = Detail {
        fingerprint: Some(0),
        digest: Some(Hex(7)),
        of: Some(KeyId(1)),
        stored: true,
        ..Detail::default()
    };
    let history = good(RERUN).run_reply(reply).dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(history.broken(), BTreeSet::from([I11]));
}

#[test]
fn i13_an_attempt_over_the_cap_is_reported() {
    let history =
        (1..=4).fold(HistoryBuilder::of(CAPPED), |history, n| history.granted(owner(n)).later(120));
    let history = history.completes(owner(4), 7, ReplyKind::Recorded);
    assert!(history.dumped(ReplyKind::Completed, 4, Some(7)).broken().contains(&I13));
}

#[test]
fn i14_a_key_without_a_final_state_is_reported() {
    for state in [ReplyKind::InProgress, ReplyKind::Open] {
        let history = HistoryBuilder::of(RERUN).granted(owner(1)).dumped(state, 1, None);
        assert!(history.broken().contains(&I14), "{state:?}");
    }
}

#[test]
fn i15_steps_that_fit_into_no_order_are_reported() {
    let busy_before_any_claim =
        HistoryBuilder::of(RERUN).call(1, Op::Claim, request(owner(1)), detail(ReplyKind::Busy));
    assert_eq!(busy_before_any_claim.broken(), BTreeSet::from([I15]));
    let gone_while_owned = HistoryBuilder::of(RERUN)
        .granted(owner(1))
        .call(1, Op::Get, Detail::default(), detail(ReplyKind::Absent))
        .completes(owner(1), 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(gone_while_owned.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_a_dump_that_no_order_ends_with_is_reported() {
    let history = HistoryBuilder::of(RERUN).granted(owner(1)).dumped(ReplyKind::Dead, 1, None);
    assert_eq!(history.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_an_outcome_that_comes_back_after_it_was_forgotten_or_erased_is_reported() {
    let steps = [(Op::Forget, ReplyKind::Forgotten), (Op::Erase, ReplyKind::Erased)];
    for (op, answer) in steps {
        let wiped = || good(RERUN).call(1, op, Detail::default(), detail(answer));
        let replayed_again = wiped().replays(7).dumped(ReplyKind::Completed, 1, Some(7));
        assert_eq!(replayed_again.broken(), BTreeSet::from([I15]), "{op:?}");
        let there_at_the_end = wiped().dumped(ReplyKind::Completed, 1, Some(7));
        assert_eq!(there_at_the_end.broken(), BTreeSet::from([I15]), "{op:?}");
    }
}

#[test]
fn i15_an_outcome_that_is_lost_although_it_was_not_forgotten_is_reported() {
    let refused = HistoryBuilder::of(RERUN)
        .granted(owner(1))
        .call(1, Op::Forget, Detail::default(), detail(ReplyKind::Refused))
        .completes(owner(1), 7, ReplyKind::Recorded);
    assert!(refused.broken().is_superset(&BTreeSet::from([I6, I15])));
    let owned = HistoryBuilder::of(RERUN).granted(owner(1)).call(
        1,
        Op::Forget,
        Detail::default(),
        detail(ReplyKind::Forgotten),
    );
    assert_eq!(owned.broken(), BTreeSet::from([I15]));
}

#[test]
fn i15_more_orders_than_can_be_searched_are_reported() {
    let claim = |n| Claimant { process: 1, ..owner(n) };
    let history = (1..=20).fold(HistoryBuilder::of(RERUN), |history, n| {
        history.open(1, Op::Claim, request(claim(n)))
    });
    let found = history.dumped(ReplyKind::Completed, 1, Some(7)).findings().violations;
    let undecided = |it: &Violation| it.invariant == I15 && it.what.contains("too many orders");
    assert!(found.iter().any(undecided), "{found:?}");
}

/// The search applies replies that change nothing as early as possible. It must still report one that was never
/// possible.
#[test]
fn i15_a_reply_that_was_true_only_before_its_call_is_reported() {
    let late = |op, request, reply| {
        let history = good(RERUN).call(1, op, request, reply);
        history.dumped(ReplyKind::Completed, 1, Some(7)).broken()
    };
    let busy = late(Op::Claim, request(owner(5)), detail(ReplyKind::Busy));
    assert!(busy.contains(&I15), "{busy:?}");
    let other = request(Claimant { payload: 1, ..owner(5) });
    assert_eq!(late(Op::Claim, other, detail(ReplyKind::Mismatch)), NONE);
    let mismatch = late(Op::Claim, request(owner(5)), detail(ReplyKind::Mismatch));
    assert!(mismatch.contains(&I15), "{mismatch:?}");
    let owned = Detail { token: Some(1), ..detail(ReplyKind::InProgress) };
    let seen = late(Op::Get, Detail::default(), owned);
    assert!(seen.contains(&I15), "{seen:?}");
    let missing = late(Op::Forget, Detail::default(), detail(ReplyKind::Missing));
    assert!(missing.contains(&I15), "{missing:?}");
    let extended = late(Op::Renew, request(owner(1)), detail(ReplyKind::Extended));
    assert!(extended.contains(&I15), "{extended:?}");
}

/// The same with open calls, none of which can explain the reply.
#[test]
fn i15_open_calls_explain_only_what_they_can_have_done() {
    let claim = |history: HistoryBuilder, n| {
        history.unacknowledged(1, Op::Claim, request(Claimant { nonce: n, ..owner(1) }))
    };
    let away = || (1000..1030).fold(HistoryBuilder::of(RERUN).shared(), claim);
    let ends = |history: HistoryBuilder| {
        let next = Claimant { nonce: 5000, ..owner(31) };
        let history =
            history.later(120).granted(next).effect(next).completes(next, 7, ReplyKind::Recorded);
        history.dumped(ReplyKind::Completed, 31, Some(7)).broken()
    };
    let claim_reply = |history: HistoryBuilder, request, answer| {
        history.call(1, Op::Claim, request, detail(answer))
    };
    let other = request(Claimant { payload: 1, ..owner(5) });
    assert_eq!(ends(away()), NONE);
    assert_eq!(ends(claim_reply(away(), other, ReplyKind::Mismatch)), NONE);
    // All of them sent this payload.
    assert_eq!(
        ends(claim_reply(away(), request(owner(5)), ReplyKind::Mismatch)),
        BTreeSet::from([I15])
    );
    // None of them records an outcome.
    assert_eq!(ends(away().replays(7)), BTreeSet::from([I15]));
    // Once the key is owned it is not absent again.
    let busy = || claim_reply(away(), request(owner(5)), ReplyKind::Busy);
    assert_eq!(ends(busy()), NONE);
    let absent = busy().call(1, Op::Get, Detail::default(), detail(ReplyKind::Absent));
    assert_eq!(ends(absent), BTreeSet::from([I15]));
}

#[test]
fn i15_an_outcome_that_a_replaced_owner_recorded_is_reported() {
    let late = Detail { digest: Some(Hex(6)), ..request(owner(1)) };
    let history = HistoryBuilder::of(RERUN).shared().granted(owner(1)).later(120).granted(owner(2));
    let history = history.unacknowledged(1, Op::Complete, late).replays(6);
    assert!(history.dumped(ReplyKind::Completed, 2, Some(6)).broken().contains(&I15));
}

/// A claim whose reply was lost is sent again with the same nonce. All copies are one owner (T2).
#[test]
fn i15_a_claim_that_is_sent_repeatedly_uses_one_token() {
    let sent = |times, token| {
        let claim =
            |history: HistoryBuilder, _| history.unacknowledged(1, Op::Claim, request(owner(1)));
        let history = (0..times).fold(HistoryBuilder::of(RERUN).shared(), claim).later(120);
        let next = Claimant { nonce: 5000, ..owner(token) };
        let history = history.granted(next).effect(next).completes(next, 7, ReplyKind::Recorded);
        history.dumped(ReplyKind::Completed, token, Some(7)).broken()
    };
    assert_eq!(sent(4, 1), NONE);
    assert_eq!(sent(4, 2), NONE);
    assert_eq!(sent(4, 3), BTreeSet::from([I15]));
}

#[test]
fn i15_a_call_outlives_its_process_only_in_a_shared_store() {
    for (frees_at_open, broken) in [(true, BTreeSet::from([I15])), (false, NONE)] {
        let request = Detail { digest: Some(Hex(7)), ..request(owner(1)) };
        let owned = Detail { token: Some(1), ..detail(ReplyKind::InProgress) };
        let mut history = HistoryBuilder::of(RERUN)
            .granted(owner(1))
            .open(1, Op::Complete, request)
            .dies(1)
            .call(2, Op::Get, Detail::default(), owned)
            .dumped(ReplyKind::Completed, 1, Some(7));
        history.evidence.rules.frees_at_open = frees_at_open;
        assert_eq!(history.broken(), broken);
    }
}

#[test]
fn i15_a_claim_that_takes_effect_after_its_server_was_killed_is_reported() {
    let history = HistoryBuilder::of(RERUN)
        .shared()
        .unacknowledged(1, Op::Claim, request(owner(1)))
        .server_dies();
    // The claim has not taken effect, and the server that had it is gone.
    let history = history.call(1, Op::Get, Detail::default(), detail(ReplyKind::Absent)).later(120);
    let history = history.granted(owner(2)).completes(owner(2), 7, ReplyKind::Recorded);
    assert!(history.dumped(ReplyKind::Completed, 2, Some(7)).broken().contains(&I15));
}

#[test]
fn i16_a_run_below_its_floor_is_reported() {
    let mut history = good(RERUN).dumped(ReplyKind::Completed, 1, Some(7));
    history.evidence.rules.floor = Floor { kills: 1, effects: 1, ..Floor::default() };
    let found = history.findings().violations;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].invariant, found[0].what.as_str()), (I16, "kills: 0 of at least 1"));
}
