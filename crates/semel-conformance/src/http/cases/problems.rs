//! Problems, as clients read them.

use crate::http::{
    context::{CaseContext, KEY},
    expected_problem::{IN_PROGRESS, KEY_INVALID, MISMATCH},
    routes::IMPATIENT,
};

pub(super) async fn refusals_tell_clients_what_to_do(case: CaseContext<'_>) {
    let request = case.post(IMPATIENT);
    let first = case.start_held(&request).await;
    let busy = case.send_while_held(&request, "no second run").await;
    IN_PROGRESS.assert_is(&busy, "a retry helps, after a while");
    let other = case.send_while_held(&request.clone().body("{}"), "no second run").await;
    MISMATCH.assert_is(&other, "no retry helps");
    KEY_INVALID.assert_is(&request.set(KEY, "").send().await, "no retry helps");
    case.open_gate();
    assert_eq!(first.response().await.status, 200, "refusals do not disturb the run");
}

pub(super) async fn refusals_can_be_read_by_browsers(case: CaseContext<'_>) {
    let answer = case.post(IMPATIENT).set(KEY, "").with("origin", "https://a.example").send().await;
    for name in ["semel-status", "stripe-should-retry", "retry-after"] {
        assert!(super::headers::exposes(&answer, name), "a browser may read {name}: {answer:?}");
    }
}
