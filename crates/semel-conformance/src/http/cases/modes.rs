//! Modes `observe` and `off`.

use crate::http::{
    context::{CaseContext, KEY, answers},
    routes::{OBSERVE, OFF},
};

pub(super) async fn observe_mode_changes_nothing(case: CaseContext<'_>) {
    lets_alone(&case, OBSERVE).await;
}

pub(super) async fn off_mode_changes_nothing(case: CaseContext<'_>) {
    lets_alone(&case, OFF).await;
}

async fn lets_alone(case: &CaseContext<'_>, route: &str) {
    let request = case.post(route);
    let requests =
        [request.clone(), request.clone(), request.clone().body("{}"), request.set(KEY, "a, b")];
    for (place, request) in requests.into_iter().enumerate() {
        let answer = request.send().await;
        assert_eq!(answer.body, format!("{{\"run\":{}}}", place + 1), "{route} lets all pass");
        assert!(!answer.is_replay(), "{route} marks nothing");
        assert_eq!(answer.text("semel-status"), None, "{route} refuses nothing");
    }
    case.assert_runs(4, &format!("{route} lets everything run"));
}

pub(super) async fn observe_mode_delays_no_request(case: CaseContext<'_>) {
    let request = case.post(OBSERVE);
    // Both wait at the gate: neither can have waited for the other.
    let both = vec![case.start_held(&request).await, case.start_held(&request).await];
    case.open_gate();
    let bodies: Vec<_> = answers(both).await.into_iter().map(|answer| answer.body).collect();
    assert_eq!(bodies, [r#"{"run":1}"#, r#"{"run":2}"#], "each gets the answer of its own run");
}
