//! What is allowed is not reported.

use semel_crash::{
    Answer, Detail, Hex, Op,
    check::Invariant::{I7, I8, I14, I15},
};

use super::history_builder::*;

#[test]
fn one_run_and_a_replay() {
    for key in [RERUN, HOLD, CAPPED, BRIEF] {
        let tale = good(key).dumped(Answer::Completed, 1, Some(7));
        assert_eq!(tale.broken(), NONE, "{key}");
    }
}

#[test]
fn a_takeover_after_a_whole_lease() {
    let tale = Tale::of(RERUN)
        .granted(owner(1))
        .effect(owner(1))
        .later(80)
        .granted(owner(2))
        .effect(owner(2))
        .completes(owner(1), 6, Answer::Superseded)
        .completes(owner(2), 7, Answer::Recorded)
        .dumped(Answer::Completed, 2, Some(7));
    assert_eq!(tale.broken(), NONE);
}

#[test]
fn a_takeover_at_once_when_the_owner_was_killed() {
    let next = Who { process: 2, ..owner(2) };
    let tale = Tale::of(RERUN)
        .granted(owner(1))
        .effect(owner(1))
        .dies(1)
        .granted(next)
        .effect(next)
        .completes(next, 7, Answer::Recorded)
        .dumped(Answer::Completed, 2, Some(7));
    assert_eq!(tale.broken(), NONE);
}

#[test]
fn an_outcome_that_nobody_was_told_may_be_there_or_not() {
    let killed = || {
        let asked = Detail { digest: Some(Hex(7)), ..asked(owner(1)) };
        Tale::of(RERUN).granted(owner(1)).effect(owner(1)).open(1, Op::Complete, asked).dies(1)
    };
    let next = Who { process: 2, ..owner(2) };
    let kept = killed().replays(7).dumped(Answer::Completed, 1, Some(7));
    let lost = killed().granted(next).effect(next).completes(next, 8, Answer::Recorded).dumped(
        Answer::Completed,
        2,
        Some(8),
    );
    assert_eq!(kept.broken(), NONE);
    assert_eq!(lost.broken(), NONE);
}

#[test]
fn a_claim_that_nobody_was_told_may_have_used_up_a_token() {
    let tale = Tale::of(RERUN)
        .open(1, Op::Claim, asked(owner(1)))
        .dies(1)
        .granted(Who { process: 2, ..owner(2) })
        .effect(Who { process: 2, ..owner(2) })
        .completes(Who { process: 2, ..owner(2) }, 7, Answer::Recorded)
        .dumped(Answer::Completed, 2, Some(7));
    assert_eq!(tale.broken(), NONE);
}

#[test]
fn a_key_on_hold_that_became_unknown() {
    let tale = Tale::of(HOLD)
        .granted(owner(1))
        .effect(owner(1))
        .dies(1)
        .call(2, Op::Claim, asked(owner(5)), detail(Answer::Unknown))
        .dumped(Answer::Unknown, 1, None);
    assert_eq!(tale.broken(), NONE);
}

#[test]
fn a_token_that_starts_again_after_the_retention() {
    let again = Who { nonce: 200, ..owner(1) };
    let tale = good(BRIEF)
        .later(130)
        .granted(again)
        .effect(again)
        .completes(again, 8, Answer::Recorded)
        .dumped(Answer::Completed, 1, Some(8));
    assert_eq!(tale.broken(), NONE);
}

/// Its retention counts from the call that nobody was told of, not from the one that found it recorded.
#[test]
fn an_outcome_is_as_old_as_the_first_call_that_may_have_recorded_it() {
    let next = Who { nonce: 200, ..owner(1) };
    let told = |first: u64| {
        let asked = Detail { digest: Some(Hex(first)), ..asked(owner(1)) };
        Tale::of(BRIEF)
            .granted(owner(1))
            .effect(owner(1))
            .given_up(1, Op::Complete, asked)
            .later(70)
            .completes(owner(1), 7, Answer::Recorded)
            .later(60)
            .granted(next)
            .effect(next)
            .completes(next, 8, Answer::Recorded)
            .dumped(Answer::Completed, 1, Some(8))
    };
    assert_eq!(told(7).broken(), NONE);
    assert!(told(6).broken().contains(&I7), "another outcome");
    let refused = Tale::of(BRIEF)
        .granted(owner(1))
        .effect(owner(1))
        .completes(owner(1), 7, Answer::Superseded)
        .later(70)
        .completes(owner(1), 7, Answer::Recorded)
        .later(60)
        .granted(next);
    assert!(
        refused.dumped(Answer::InProgress, 1, None).broken().contains(&I7),
        "told that it is not"
    );
}

#[test]
fn a_key_that_an_operator_forgot_or_erased() {
    let operator = |tale: Tale, op, answer| tale.call(1, op, Detail::default(), detail(answer));
    let again = Who { nonce: 200, ..owner(1) };
    let forgotten = || operator(good(RERUN), Op::Forget, Answer::Forgotten);
    assert_eq!(forgotten().broken(), NONE);
    let runs_again = forgotten().granted(again).effect(again);
    let runs_again = runs_again.completes(again, 8, Answer::Recorded).replays(8);
    assert_eq!(runs_again.dumped(Answer::Completed, 1, Some(8)).broken(), NONE);
    let erased = operator(good(RERUN), Op::Erase, Answer::Erased);
    let erased = erased.call(1, Op::Claim, asked(owner(5)), detail(Answer::Gone));
    assert_eq!(erased.dumped(Answer::Erased, 1, None).broken(), NONE);
}

/// A claim that stalled is asked again with its nonce, and meets the key without a record.
#[test]
fn a_claim_asked_again_after_its_record_expired_is_a_first_one() {
    let stalled = Who { nonce: 200, ..owner(2) };
    let again = Who { token: 1, ..stalled };
    let tale = Tale::of(BRIEF)
        .granted(owner(1))
        .owner_step(owner(1), Op::Abandon, Answer::Lapsing)
        .later(20)
        .granted_late(stalled, 220)
        .granted(again)
        .effect(again)
        .completes(again, 7, Answer::Recorded)
        .dumped(Answer::Completed, 1, Some(7));
    assert_eq!(tale.broken(), NONE);
}

/// A grant from before the record expired may be told after one from later.
#[test]
fn a_grant_of_an_expired_record_that_is_told_late() {
    let stalled = Who { nonce: 200, ..owner(2) };
    let next = Who { nonce: 300, ..owner(1) };
    let tale = Tale::of(BRIEF)
        .shared()
        .granted(owner(1))
        .owner_step(owner(1), Op::Abandon, Answer::Lapsing)
        .later(20)
        .granted_after(stalled, |tale| tale.later(500).granted(next).later(200).granted(next))
        .effect(next)
        .completes(next, 7, Answer::Recorded)
        .replays(7)
        .dumped(Answer::Completed, 1, Some(7));
    assert_eq!(tale.broken(), NONE);
}

/// Half a removal may leave a copy in front of the store, until another has come to its end.
#[test]
fn a_copy_that_half_a_removal_left() {
    let again = Who { nonce: 200, payload: 1, ..owner(1) };
    let forget =
        |tale: Tale| tale.call(1, Op::Forget, Detail::default(), detail(Answer::Forgotten));
    let half = |has_front| {
        let mut tale = good(OPERATED).shared().given_up(1, Op::Forget, Detail::default());
        tale.evidence.rules.has_front = has_front;
        tale.granted(again).replays(7).effect(again).completes(again, 8, Answer::Recorded)
    };
    assert_eq!(half(true).dumped(Answer::Completed, 1, Some(8)).broken(), NONE);
    assert_eq!(half(false).dumped(Answer::Completed, 1, Some(8)).broken(), [I15].into());
    assert_eq!(forget(half(true)).broken(), NONE);
    assert_eq!(forget(half(true)).replays(7).broken(), [I15].into());
}

/// Of two removals without an end, either may have left its copy.
#[test]
fn a_copy_that_the_second_half_removal_left() {
    let who = |nonce| Who { nonce, ..owner(1) };
    let half = |tale: Tale| tale.given_up(1, Op::Forget, Detail::default());
    for left in [7, 8] {
        let mut tale = half(good(OPERATED).shared());
        tale.evidence.rules.has_front = true;
        let tale = tale.granted(who(200)).effect(who(200)).completes(who(200), 8, Answer::Recorded);
        let tale = half(tale.replays(8)).granted(who(300)).effect(who(300));
        let tale = tale.completes(who(300), 9, Answer::Recorded).replays(9).replays(left);
        assert_eq!(tale.dumped(Answer::Completed, 1, Some(9)).broken(), NONE, "{left}");
    }
}

/// Whoever asks is answered by the copy, so nobody comes for the key behind it.
#[test]
fn a_key_that_such_a_copy_hides() {
    let again = Who { nonce: 200, payload: 1, ..owner(1) };
    let stuck = |has_front, is_asked: bool| {
        let mut tale = good(OPERATED).shared().given_up(1, Op::Forget, Detail::default());
        tale.evidence.rules.has_front = has_front;
        let tale = tale.granted(again);
        let tale = if is_asked { tale.replays(7) } else { tale };
        tale.dumped(Answer::InProgress, 1, None).broken()
    };
    assert_eq!(stuck(true, true), NONE);
    assert!(stuck(true, false).contains(&I14), "nobody asked for it");
    assert!(stuck(false, true).contains(&I14), "there is no copy");
}

/// Two calls of one owner at the moment of expiry, one of which comes too late.
#[test]
fn a_record_that_one_call_extends_and_another_finds_gone() {
    let tale = |by_estimate, millis| {
        let mut tale = Tale::of(BRIEF).shared().granted(owner(1)).later(millis);
        tale.evidence.rules.expires_by_estimate = by_estimate;
        tale.owner_step(owner(1), Op::Release, Answer::Missing)
            .owner_step(owner(1), Op::Renew, Answer::Extended)
            .completes(owner(1), 7, Answer::Recorded)
            .dumped(Answer::Completed, 1, Some(7))
    };
    assert_eq!(tale(true, 199).broken(), NONE);
    assert_eq!(tale(false, 199).broken(), [I15].into());
    assert_eq!(tale(true, 1).broken(), [I15].into());
}

/// Two claims at once that are both first ones.
#[test]
fn a_grant_that_was_overtaken_within_a_life_is_no_excuse() {
    let (one, other) = (Who { nonce: 200, ..owner(1) }, Who { nonce: 300, ..owner(1) });
    let tale = Tale::of(BRIEF).shared().granted_after(one, |tale| tale.granted(other));
    let tale = tale.completes(other, 7, Answer::Recorded).replays(7);
    assert!(tale.dumped(Answer::Completed, 1, Some(7)).broken().contains(&I8));
}

/// A server that was away: what was asked meanwhile may have happened, each or none, in any order.
#[test]
fn a_hundred_claims_that_nobody_was_told_of() {
    let away = |token| {
        let claim =
            |tale: Tale, n| tale.given_up(1, Op::Claim, asked(Who { nonce: n, ..owner(1) }));
        let tale = (1000..1100).fold(Tale::of(RERUN).shared(), claim).later(90);
        let owner = Who { nonce: 5000, ..owner(token) };
        let tale = tale.granted(owner).effect(owner).completes(owner, 7, Answer::Recorded);
        tale.replays(7).dumped(Answer::Completed, token, Some(7))
    };
    assert_eq!(away(1).broken(), NONE);
    assert_eq!(away(60).broken(), NONE);
    assert_eq!(away(101).broken(), NONE);
    assert!(away(102).broken().contains(&I15));
}

#[test]
fn a_claim_that_a_killed_server_took_before_it_died() {
    let tale = Tale::of(RERUN).shared().given_up(1, Op::Claim, asked(owner(1))).server_dies();
    let tale = tale.later(90).granted(owner(2)).effect(owner(2));
    let tale = tale.completes(owner(2), 7, Answer::Recorded);
    assert_eq!(tale.dumped(Answer::Completed, 2, Some(7)).broken(), NONE);
}
