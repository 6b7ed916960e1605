//! A store that fails before the work, and one that fails after it.

use futures_util::future::join_all;

use crate::http::{
    TestRequest, TestResponse,
    context::{CaseContext, KEY},
    expected_problem::STORE_UNAVAILABLE,
    routes::{IMPATIENT, OBSERVE, OFF, PLAIN},
};

pub(super) async fn nothing_runs_without_the_store(case: CaseContext<'_>) {
    let request = case.post(IMPATIENT);
    case.target.break_store().await;
    let refused = request.send().await;
    case.target.repair_store().await;
    STORE_UNAVAILABLE
        .assert_is(&refused, "without a store nothing is protected, so nothing is served");
    case.assert_runs(0, "nothing runs without the store");
    let served = |answer: &TestResponse| answer.status == 200;
    let first = case.send_until(&request, served, "a repaired store serves again").await;
    assert!(!first.is_replay(), "a refused request left nothing behind");
    case.assert_runs(1, "a repaired store serves again");
}

pub(super) async fn an_answer_that_could_not_be_recorded_is_still_sent(case: CaseContext<'_>) {
    let request = case.post(IMPATIENT);
    let first = case.start_held(&request).await;
    case.target.break_store().await;
    case.open_gate();
    let first = first.response().await;
    case.target.repair_store().await;
    assert_eq!(first.status, 200, "the effect happened, and its caller gets the answer: {first:?}");
    assert_eq!(first.text("idempotency-stored"), Some("false"), "the missing record is admitted");
    let again = case
        .send_until(&request, TestResponse::is_replay, "a repaired store gets the record")
        .await;
    assert_eq!(again.body, first.body, "what was recorded late is the run's own outcome");
    case.assert_runs(1, "an effect that was not recorded at once does not run again");
}

pub(super) async fn unprotected_requests_need_no_store(case: CaseContext<'_>) {
    let requests = [case.post(PLAIN).without(KEY), case.post(OBSERVE), case.post(OFF)];
    case.target.break_store().await;
    let answers = join_all(requests.iter().map(TestRequest::send)).await;
    case.target.repair_store().await;
    for answer in answers {
        assert_eq!(answer.status, 200, "what is not guarded requests no store: {answer:?}");
    }
}
