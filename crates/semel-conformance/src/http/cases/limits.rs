//! Bodies are bounded both ways, and never at the price of a second run.

use crate::http::{
    TestRequest,
    context::{CaseContext, KEY},
    expected_problem::{KEY_MISSING, TOO_LARGE},
    routes::{PLAIN, REQUIRED, SMALL},
    upstream::header::{BODY, HEADER},
};

pub(super) async fn an_oversize_request_is_refused(case: CaseContext<'_>) {
    let half = "x".repeat(1 << 10);
    for request in [case.post(SMALL).body(half.repeat(2)), case.post(SMALL).chunks([&half, &half])]
    {
        TOO_LARGE.assert_is(&request.send().await, "a body that cannot be compared is refused");
    }
    case.assert_runs(0, "an oversize request does not run");
}

pub(super) async fn a_refusal_reaches_a_caller_that_is_still_sending(case: CaseContext<'_>) {
    let (fits_no_limit, keyless) = unread(&case, 256 << 10);
    TOO_LARGE.assert_is(&fits_no_limit.send().await, "a body that never fits");
    KEY_MISSING.assert_is(&keyless.send().await, "a body that is not read");
    case.assert_runs(0, "a refused request does not run");
}

pub(super) async fn an_endless_body_is_refused(case: CaseContext<'_>) {
    let (fits_no_limit, keyless) = unread(&case, 8 << 20);
    // A target may close the connection over such a large body, and then its answer may be lost.
    for request in [fits_no_limit, keyless] {
        let served = request.try_send().await.is_ok_and(|answer| answer.status.is_success());
        assert!(!served, "a refused request is not served");
    }
    case.assert_runs(0, "a refused request does not run");
}

/// A request over the limit, and one without the key its route requires.
fn unread(case: &CaseContext<'_>, size: usize) -> (TestRequest, TestRequest) {
    let body = vec![b'x'; size];
    (case.post(SMALL).body(body.clone()), case.post(REQUIRED).without(KEY).body(body))
}

pub(super) async fn a_request_at_the_limit_is_served(case: CaseContext<'_>) {
    case.send_and_replay(&case.post(SMALL).body("x".repeat(1 << 10))).await;
}

pub(super) async fn an_oversize_answer_never_runs_again(case: CaseContext<'_>) {
    omitted(&case, SMALL, 4 << 10).await;
}

pub(super) async fn an_answer_over_a_mebibyte_never_runs_again(case: CaseContext<'_>) {
    omitted(&case, PLAIN, 2 << 20).await;
}

async fn omitted(case: &CaseContext<'_>, route: &str, size: usize) {
    let request = case.post(route).with(BODY, format!("big:{size}")).with(HEADER, "location: /a");
    let first = request.send().await;
    assert_eq!(first.body.len(), size, "the first caller gets an oversize answer whole");
    for _ in 0..2 {
        super::assert_body_omitted(&first, &request.send().await);
    }
    case.assert_runs(1, "an answer too big to keep is not run again");
}
