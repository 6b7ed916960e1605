//! Histories without a violation: the checker reports nothing.

use semel_crash::{
    Detail, Hex, Op, ReplyKind,
    check::Invariant::{I7, I8, I14, I15},
};

use super::history_builder::*;

#[test]
fn one_run_and_a_replay() {
    for key in [RERUN, HOLD, CAPPED, BRIEF] {
        let history = good(key).dumped(ReplyKind::Completed, 1, Some(7));
        assert_eq!(history.broken(), NONE, "{key}");
    }
}

#[test]
fn a_takeover_after_a_whole_lease_and_the_grace_period() {
    let history = HistoryBuilder::of(RERUN)
        .granted(owner(1))
        .effect(owner(1))
        .later(120)
        .granted(owner(2))
        .effect(owner(2))
        .completes(owner(1), 6, ReplyKind::Superseded)
        .completes(owner(2), 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 2, Some(7));
    assert_eq!(history.broken(), NONE);
}

#[test]
fn a_takeover_at_once_when_the_owner_was_killed() {
    let next = Claimant { process: 2, ..owner(2) };
    let history = HistoryBuilder::of(RERUN)
        .granted(owner(1))
        .effect(owner(1))
        .dies(1)
        .granted(next)
        .effect(next)
        .completes(next, 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 2, Some(7));
    assert_eq!(history.broken(), NONE);
}

#[test]
fn an_unacknowledged_outcome_may_be_recorded_or_not() {
    let killed = || {
        let request = Detail { digest: Some(Hex(7)), ..request(owner(1)) };
        HistoryBuilder::of(RERUN)
            .granted(owner(1))
            .effect(owner(1))
            .open(1, Op::Complete, request)
            .dies(1)
    };
    let next = Claimant { process: 2, ..owner(2) };
    let kept = killed().replays(7).dumped(ReplyKind::Completed, 1, Some(7));
    let lost = killed().granted(next).effect(next).completes(next, 8, ReplyKind::Recorded).dumped(
        ReplyKind::Completed,
        2,
        Some(8),
    );
    assert_eq!(kept.broken(), NONE);
    assert_eq!(lost.broken(), NONE);
}

#[test]
fn an_unacknowledged_claim_may_have_used_a_token() {
    let history = HistoryBuilder::of(RERUN)
        .open(1, Op::Claim, request(owner(1)))
        .dies(1)
        .granted(Claimant { process: 2, ..owner(2) })
        .effect(Claimant { process: 2, ..owner(2) })
        .completes(Claimant { process: 2, ..owner(2) }, 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 2, Some(7));
    assert_eq!(history.broken(), NONE);
}

#[test]
fn a_key_on_hold_that_became_unknown() {
    let history = HistoryBuilder::of(HOLD)
        .granted(owner(1))
        .effect(owner(1))
        .dies(1)
        .call(2, Op::Claim, request(owner(5)), detail(ReplyKind::Unknown))
        .dumped(ReplyKind::Unknown, 1, None);
    assert_eq!(history.broken(), NONE);
}

#[test]
fn a_token_that_starts_again_after_the_retention() {
    let again = Claimant { nonce: 200, ..owner(1) };
    let history = good(BRIEF)
        .later(130)
        .granted(again)
        .effect(again)
        .completes(again, 8, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 1, Some(8));
    assert_eq!(history.broken(), NONE);
}

/// The retention counts from the call without a reply, not from the one that found the outcome recorded.
#[test]
fn an_outcome_is_as_old_as_the_first_call_that_may_have_recorded_it() {
    let next = Claimant { nonce: 200, ..owner(1) };
    let with_first_outcome = |first: u64| {
        let request = Detail { digest: Some(Hex(first)), ..request(owner(1)) };
        HistoryBuilder::of(BRIEF)
            .granted(owner(1))
            .effect(owner(1))
            .unacknowledged(1, Op::Complete, request)
            .later(70)
            .completes(owner(1), 7, ReplyKind::Recorded)
            .later(60)
            .granted(next)
            .effect(next)
            .completes(next, 8, ReplyKind::Recorded)
            .dumped(ReplyKind::Completed, 1, Some(8))
    };
    assert_eq!(with_first_outcome(7).broken(), NONE);
    assert!(with_first_outcome(6).broken().contains(&I7), "another outcome");
    let refused = HistoryBuilder::of(BRIEF)
        .granted(owner(1))
        .effect(owner(1))
        .completes(owner(1), 7, ReplyKind::Superseded)
        .later(70)
        .completes(owner(1), 7, ReplyKind::Recorded)
        .later(60)
        .granted(next);
    assert!(
        refused.dumped(ReplyKind::InProgress, 1, None).broken().contains(&I7),
        "the first completion was refused"
    );
}

#[test]
fn a_key_that_an_operator_forgot_or_erased() {
    let operator = |history: HistoryBuilder, op, answer| {
        history.call(1, op, Detail::default(), detail(answer))
    };
    let again = Claimant { nonce: 200, ..owner(1) };
    let forgotten = || operator(good(RERUN), Op::Forget, ReplyKind::Forgotten);
    assert_eq!(forgotten().broken(), NONE);
    let runs_again = forgotten().granted(again).effect(again);
    let runs_again = runs_again.completes(again, 8, ReplyKind::Recorded).replays(8);
    assert_eq!(runs_again.dumped(ReplyKind::Completed, 1, Some(8)).broken(), NONE);
    let erased = operator(good(RERUN), Op::Erase, ReplyKind::Erased);
    let erased = erased.call(1, Op::Claim, request(owner(5)), detail(ReplyKind::Gone));
    assert_eq!(erased.dumped(ReplyKind::Erased, 1, None).broken(), NONE);
}

/// A claim whose reply came late is sent again with its nonce, and finds the key without a record.
#[test]
fn a_claim_sent_again_after_its_record_expired_is_a_first_claim() {
    let stalled = Claimant { nonce: 200, ..owner(2) };
    let again = Claimant { token: 1, ..stalled };
    let history = HistoryBuilder::of(BRIEF)
        .granted(owner(1))
        .owner_step(owner(1), Op::Abandon, ReplyKind::Lapsing)
        .later(20)
        .granted_late(stalled, 220)
        .granted(again)
        .effect(again)
        .completes(again, 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(history.broken(), NONE);
}

/// The reply of a grant from before the expiry may come after that of a later grant.
#[test]
fn a_grant_of_an_expired_record_whose_reply_comes_late() {
    let stalled = Claimant { nonce: 200, ..owner(2) };
    let next = Claimant { nonce: 300, ..owner(1) };
    let history = HistoryBuilder::of(BRIEF)
        .shared()
        .granted(owner(1))
        .owner_step(owner(1), Op::Abandon, ReplyKind::Lapsing)
        .later(20)
        .granted_after(stalled, |history| history.later(500).granted(next).later(200).granted(next))
        .effect(next)
        .completes(next, 7, ReplyKind::Recorded)
        .replays(7)
        .dumped(ReplyKind::Completed, 1, Some(7));
    assert_eq!(history.broken(), NONE);
}

/// A removal without a reply may leave a copy in the front, until another removal is acknowledged.
#[test]
fn a_copy_that_an_unacknowledged_removal_left() {
    let again = Claimant { nonce: 200, payload: 1, ..owner(1) };
    let forget = |history: HistoryBuilder| {
        history.call(1, Op::Forget, Detail::default(), detail(ReplyKind::Forgotten))
    };
    let half = |has_front| {
        let mut history = good(OPERATED).shared().unacknowledged(1, Op::Forget, Detail::default());
        history.evidence.rules.has_front = has_front;
        history.granted(again).replays(7).effect(again).completes(again, 8, ReplyKind::Recorded)
    };
    assert_eq!(half(true).dumped(ReplyKind::Completed, 1, Some(8)).broken(), NONE);
    assert_eq!(half(false).dumped(ReplyKind::Completed, 1, Some(8)).broken(), [I15].into());
    assert_eq!(forget(half(true)).broken(), NONE);
    assert_eq!(forget(half(true)).replays(7).broken(), [I15].into());
}

/// Of two removals without a reply, either may have left its copy.
#[test]
fn a_copy_that_the_second_unacknowledged_removal_left() {
    let claimant = |nonce| Claimant { nonce, ..owner(1) };
    let half = |history: HistoryBuilder| history.unacknowledged(1, Op::Forget, Detail::default());
    for left in [7, 8] {
        let mut history = half(good(OPERATED).shared());
        history.evidence.rules.has_front = true;
        let history = history.granted(claimant(200)).effect(claimant(200)).completes(
            claimant(200),
            8,
            ReplyKind::Recorded,
        );
        let history = half(history.replays(8)).granted(claimant(300)).effect(claimant(300));
        let history =
            history.completes(claimant(300), 9, ReplyKind::Recorded).replays(9).replays(left);
        assert_eq!(history.dumped(ReplyKind::Completed, 1, Some(9)).broken(), NONE, "{left}");
    }
}

/// The copy answers every claim, so none reaches the key in the authority.
#[test]
fn a_key_that_a_leftover_copy_hides() {
    let again = Claimant { nonce: 200, payload: 1, ..owner(1) };
    let stuck = |has_front, is_claimed: bool| {
        let mut history = good(OPERATED).shared().unacknowledged(1, Op::Forget, Detail::default());
        history.evidence.rules.has_front = has_front;
        let history = history.granted(again);
        let history = if is_claimed { history.replays(7) } else { history };
        history.dumped(ReplyKind::InProgress, 1, None).broken()
    };
    assert_eq!(stuck(true, true), NONE);
    assert!(stuck(true, false).contains(&I14), "no claim was answered by the copy");
    assert!(stuck(false, true).contains(&I14), "there is no copy");
}

/// Two calls of one owner at the moment of expiry, one of which finds the record expired.
#[test]
fn a_record_that_one_call_extends_and_another_finds_expired() {
    let history = |by_estimate, millis| {
        let mut history = HistoryBuilder::of(BRIEF).shared().granted(owner(1)).later(millis);
        history.evidence.rules.expires_by_estimate = by_estimate;
        history
            .owner_step(owner(1), Op::Release, ReplyKind::Missing)
            .owner_step(owner(1), Op::Renew, ReplyKind::Extended)
            .completes(owner(1), 7, ReplyKind::Recorded)
            .dumped(ReplyKind::Completed, 1, Some(7))
    };
    assert_eq!(history(true, 199).broken(), NONE);
    assert_eq!(history(false, 199).broken(), [I15].into());
    assert_eq!(history(true, 1).broken(), [I15].into());
}

/// The record of the first payload has expired, and the reply to the first claim of the next one was lost.
#[test]
fn late_calls_of_a_lost_owner_do_not_keep_its_record() {
    let next = Claimant { process: 2, nonce: 500, token: 2, payload: 1 };
    let history = HistoryBuilder::of(BRIEF)
        .shared()
        .granted(owner(1))
        .effect(owner(1))
        .later(300)
        .open(2, Op::Claim, request(Claimant { nonce: 400, ..next }))
        .later(120)
        .owner_step(owner(1), Op::Renew, ReplyKind::Lost)
        .granted(next)
        .effect(next)
        .completes(next, 7, ReplyKind::Recorded)
        .dumped(ReplyKind::Completed, 2, Some(7));
    assert_eq!(history.broken(), NONE);
}

/// Two concurrent claims that both get the first token.
#[test]
fn two_grants_of_one_token_within_a_life_are_reported() {
    let (one, other) = (Claimant { nonce: 200, ..owner(1) }, Claimant { nonce: 300, ..owner(1) });
    let history =
        HistoryBuilder::of(BRIEF).shared().granted_after(one, |history| history.granted(other));
    let history = history.completes(other, 7, ReplyKind::Recorded).replays(7);
    assert!(history.dumped(ReplyKind::Completed, 1, Some(7)).broken().contains(&I8));
}

/// A server that was down: each of the calls meanwhile may have taken effect or not, in any order.
#[test]
fn a_hundred_unacknowledged_claims() {
    let away = |token| {
        let claim = |history: HistoryBuilder, n| {
            history.unacknowledged(1, Op::Claim, request(Claimant { nonce: n, ..owner(1) }))
        };
        let history = (1000..1100).fold(HistoryBuilder::of(RERUN).shared(), claim).later(120);
        let owner = Claimant { nonce: 5000, ..owner(token) };
        let history = history.granted(owner).effect(owner).completes(owner, 7, ReplyKind::Recorded);
        history.replays(7).dumped(ReplyKind::Completed, token, Some(7))
    };
    assert_eq!(away(1).broken(), NONE);
    assert_eq!(away(60).broken(), NONE);
    assert_eq!(away(101).broken(), NONE);
    assert!(away(102).broken().contains(&I15));
}

#[test]
fn a_claim_that_took_effect_before_its_server_was_killed() {
    let history = HistoryBuilder::of(RERUN)
        .shared()
        .unacknowledged(1, Op::Claim, request(owner(1)))
        .server_dies();
    let history = history.later(120).granted(owner(2)).effect(owner(2));
    let history = history.completes(owner(2), 7, ReplyKind::Recorded);
    assert_eq!(history.dumped(ReplyKind::Completed, 2, Some(7)).broken(), NONE);
}
