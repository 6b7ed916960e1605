//! Bodies that come bit by bit, and bodies that do not come to their end.

use crate::http::{
    TestRequest, TestResponse,
    context::CaseContext,
    expected_problem::UNKNOWN,
    routes::{HOLD, PLAIN},
    upstream::header::{BREAK, HEADER, STEP, STREAM},
};

pub(super) async fn a_stream_passes_while_it_runs(case: CaseContext<'_>) {
    let request = case.post(PLAIN).set(STREAM, "3").set(STEP, &case.id);
    let mut reply = request.start().await.stream().await.expect("a stream has a head");
    let first = reply.next_piece().await.expect("a stream is not broken off");
    // The gate is shut: the second event is not yet written.
    assert_eq!(first.as_deref(), Some(&b"data: 1.1\n\n"[..]), "an event passes when it is sent");
    case.open_gate();
    case.open_gate();
    let rest = reply.collect().await.expect("a stream is not broken off");
    assert_eq!(rest.body, "data: 1.2\n\ndata: 1.3\n\n", "a stream passes whole");
}

pub(super) async fn a_stream_is_recorded_without_its_body(case: CaseContext<'_>) {
    let request = case.post(PLAIN).set(STREAM, "3").with(HEADER, "location: /a");
    let first = request.send().await;
    assert_eq!(first.body, "data: 1.1\n\ndata: 1.2\n\ndata: 1.3\n\n", "a stream passes whole");
    let again = request.send().await;
    case.assert_runs(1, "a stream that came to its end is not run again");
    super::assert_body_omitted(&first, &again);
}

pub(super) async fn a_hang_up_does_not_end_a_stream(case: CaseContext<'_>) {
    let request = case.post(PLAIN).set(STREAM, "3").set(STEP, &case.id);
    let mut reply = request.start().await.stream().await.expect("a stream has a head");
    reply.next_piece().await.expect("a stream is not broken off");
    drop(reply);
    case.send_unrelated_requests().await;
    case.open_gate();
    case.open_gate();
    let again = request.send().await;
    case.assert_runs(1, "a stream whose caller hung up does not run again");
    assert!(again.is_replay(), "a stream without a reader comes to its end: {again:?}");
    assert_eq!(again.text("idempotency-body"), Some("omitted"), "an omitted body is admitted");
}

pub(super) async fn a_broken_stream_is_not_recorded(case: CaseContext<'_>) {
    broken(&case, case.post(PLAIN).set(STREAM, "4")).await;
}

pub(super) async fn a_broken_body_is_not_recorded(case: CaseContext<'_>) {
    broken(&case, case.post(PLAIN)).await;
}

async fn broken(case: &CaseContext<'_>, request: TestRequest) {
    let first = request.clone().with(BREAK, "1").try_send().await;
    let whole = first.is_ok_and(|answer| answer.status.is_success());
    assert!(!whole, "a body that broke off does not look whole");
    let served = |answer: &TestResponse| answer.status == 200;
    let again = case.send_until(&request, served, "a broken answer does not keep its key").await;
    assert!(!again.is_replay(), "half an answer is not replayed");
    case.assert_runs(2, "a retry after a broken answer runs");
}

pub(super) async fn a_broken_stream_on_hold_is_unknown(case: CaseContext<'_>) {
    let request = case.post(HOLD).set(STREAM, "4");
    drop(request.clone().with(BREAK, "1").try_send().await);
    UNKNOWN.assert_is(&request.send().await, "it is unknown how far a broken run came");
    case.assert_runs(1, "on hold nothing runs twice");
}
