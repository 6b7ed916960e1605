//! Runs whose effect cannot be known, and keys that are erased or out of attempts.

use crate::http::{
    TestResponse,
    context::CaseContext,
    expected_problem::{ERASED, EXHAUSTED, FAILED, UNKNOWN},
    routes::{CAPPED, HOLD, PLAIN},
    upstream::header::{PANIC, STATUS},
};

pub(super) async fn a_panic_is_answered_and_runs_again(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let first = request.clone().with(PANIC, "1").send().await;
    FAILED.assert_is_or_upstream_failed(&first, "a panic is answered");
    let done = |answer: &TestResponse| answer.status == 200;
    let again = case.send_until(&request, done, "a panic does not keep its key").await;
    assert!(!again.is_replay(), "a panic leaves nothing to replay");
    case.assert_runs(2, "a retry after a panic runs");
}

pub(super) async fn a_panic_on_hold_stays_unknown(case: CaseContext<'_>) {
    let request = case.post(HOLD);
    let first = request.clone().with(PANIC, "1").send().await;
    UNKNOWN.assert_is(&first, "the first caller gets outcome-unknown");
    for _ in 0..2 {
        UNKNOWN.assert_is(&request.send().await, "an unknown outcome stays unknown");
    }
    case.assert_runs(1, "on hold nothing runs twice");
}

pub(super) async fn a_timeout_on_hold_stays_unknown(case: CaseContext<'_>) {
    let request = case.post(HOLD).set(STATUS, "408");
    let first = request.send().await;
    assert_eq!(first.status, 408, "the first caller gets the handler's status");
    assert_eq!(first.text("stripe-should-retry"), Some("false"), "a held key is not retried");
    UNKNOWN.assert_is(
        &request.set(STATUS, "200").send().await,
        "the effect of a timeout cannot be known",
    );
    case.assert_runs(1, "on hold nothing runs twice");
}

pub(super) async fn attempts_end_at_the_cap(case: CaseContext<'_>) {
    let request = case.post(CAPPED).set(STATUS, "503");
    for _ in 0..2 {
        assert_eq!(request.send().await.status, 503, "up to the cap a failure runs again");
    }
    for _ in 0..2 {
        EXHAUSTED
            .assert_is(&request.clone().set(STATUS, "200").send().await, "attempts are used up");
    }
    case.assert_runs(2, "beyond the cap nothing runs");
}

pub(super) async fn an_erased_key_is_gone(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    request.send().await;
    case.target.erase("POST /test/plain", &case.alice(), &case.key()).await;
    ERASED.assert_is(&request.send().await, "an erased outcome is gone");
    ERASED.assert_is(&request.body("{}").send().await, "an erased key remembers no request");
    case.assert_runs(1, "an erased key does not run again");
}
