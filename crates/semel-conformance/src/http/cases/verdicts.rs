//! Which answers of the handler are recorded.

use crate::http::{
    TestRequest,
    context::{CaseContext, KEY, assert_replay_of},
    expected_problem::MISMATCH,
    routes::{FINAL, HOLD, PLAIN},
    upstream::header::{HEADER, STATUS},
};

pub(super) async fn client_errors_are_recorded(case: CaseContext<'_>) {
    for (place, status) in ["400", "404", "409", "422"].into_iter().enumerate() {
        let request = keyed(&case, PLAIN, status);
        let first = request.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        assert_replay_of(&first, &request.set(STATUS, "200").send().await);
        case.assert_runs(place + 1, &format!("a {status} is an outcome and is not run again"));
    }
}

pub(super) async fn server_errors_run_again(case: CaseContext<'_>) {
    for (place, status) in ["408", "500", "502", "503", "504"].into_iter().enumerate() {
        let request = keyed(&case, PLAIN, status);
        let first = request.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        let again = request.set(STATUS, "200").send().await;
        assert_eq!(again.status, 200, "a {status} is not an outcome: {again:?}");
        case.assert_runs(2 * place + 2, &format!("a retry after a {status} runs"));
    }
}

pub(super) async fn a_server_error_keeps_the_key_for_its_request(case: CaseContext<'_>) {
    let request = keyed(&case, PLAIN, "503");
    request.send().await;
    MISMATCH.assert_is(&request.body("{}").send().await, "a failed run may have had an effect");
    case.assert_runs(1, "another body under a failed key does not run");
}

pub(super) async fn answers_without_effect_free_the_key(case: CaseContext<'_>) {
    for (place, status) in ["401", "403", "425", "429"].into_iter().enumerate() {
        let request = keyed(&case, PLAIN, status);
        let first = request.send().await;
        assert_eq!(first.status.as_str(), status, "the first caller gets the handler's status");
        let again = request.set(STATUS, "200").body("{}").send().await;
        assert_eq!(again.status, 200, "after a {status} any request may use the key: {again:?}");
        case.assert_runs(2 * place + 2, &format!("a {status} had no effect and is not recorded"));
    }
}

pub(super) async fn a_problem_of_an_inner_layer_is_not_recorded(case: CaseContext<'_>) {
    let request = keyed(&case, PLAIN, "409").with(HEADER, "semel-status: in-progress");
    assert_eq!(request.send().await.status, 409, "the problem of an inner layer is passed on");
    let again = request.without(HEADER).set(STATUS, "200").send().await;
    assert_eq!(again.status, 200, "the problem of an inner layer is no outcome: {again:?}");
    case.assert_runs(2, "a retry after the problem of an inner layer runs");
}

pub(super) async fn a_problem_name_is_ignored_on_another_status(case: CaseContext<'_>) {
    let said = [("200", "attempt-failed"), ("404", "in-progress"), ("409", "no-such-name")];
    for (place, (status, name)) in said.into_iter().enumerate() {
        let request = keyed(&case, PLAIN, status).with(HEADER, format!("semel-status: {name}"));
        let first = request.send().await;
        assert_eq!(first.text("semel-status"), None, "{name} is no refusal on a {status}");
        assert_replay_of(&first, &request.send().await);
        case.assert_runs(
            place + 1,
            &format!("a {status} is an outcome, whatever Semel-Status it has"),
        );
    }
}

pub(super) async fn server_errors_can_be_final(case: CaseContext<'_>) {
    stays(&case, FINAL).await;
}

pub(super) async fn server_errors_on_hold_are_final(case: CaseContext<'_>) {
    stays(&case, HOLD).await;
}

async fn stays(case: &CaseContext<'_>, route: &str) {
    let request = keyed(case, route, "500");
    let first = request.send().await;
    assert_eq!(first.status, 500, "the first caller gets the handler's status");
    assert_replay_of(&first, &request.set(STATUS, "200").send().await);
    case.assert_runs(1, "a final server error is not run again");
}

/// A request whose key is of its own for every status.
fn keyed(case: &CaseContext<'_>, route: &str, status: &str) -> TestRequest {
    case.post(route).set(KEY, format!("{status}-{}", case.id)).set(STATUS, status)
}
