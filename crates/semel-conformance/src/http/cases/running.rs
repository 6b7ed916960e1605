//! Requests that come while the work runs.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::http::{
    RunState, TestRequest,
    context::{CaseContext, KEY, answers, assert_replay_of},
    expected_problem::{IN_PROGRESS, MISMATCH},
    routes::{IMPATIENT, PLAIN},
    upstream::header::{GATE, STATUS},
};

pub(super) async fn one_of_many_runs(case: CaseContext<'_>) {
    let request = case.post(PLAIN).set(GATE, &case.id);
    let all = join_all((0..100).map(|_| request.start())).await;
    case.wait_arrived(1).await;
    case.open_gate();
    let answers = answers(all).await;
    case.assert_runs(1, "of a hundred at once, one runs");
    let (again, first): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.is_replay());
    assert_eq!(first.len(), 1, "of a hundred at once, one is the first");
    again.iter().for_each(|again| assert_replay_of(first[0], again));
}

pub(super) async fn a_duplicate_that_may_not_wait_gets_retry_after(case: CaseContext<'_>) {
    let request = case.post(IMPATIENT);
    let first = case.start_held(&request).await;
    let busy = case.send_while_held(&request, "a duplicate does not run beside its first").await;
    IN_PROGRESS.assert_is(&busy, "the first is still running");
    case.open_gate();
    assert_replay_of(&first.response().await, &request.send().await);
}

pub(super) async fn another_body_is_refused_at_once(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let first = case.start_held(&request).await;
    // The gate is closed: a request that waits for the run would not be answered.
    let other = case.send_while_held(&request.clone().body("{}"), "a mismatch does not run").await;
    MISMATCH.assert_is(&other, "another body under a running key is refused at once");
    case.open_gate();
    assert_eq!(first.response().await.status, 200, "the run is not disturbed");
}

pub(super) async fn refusals_do_not_change_the_record(case: CaseContext<'_>) {
    let request = case.post(IMPATIENT);
    let other = request.clone().body("{}");
    let first = case.start_held(&request).await;
    IN_PROGRESS.assert_is(&case.send_while_held(&request, "no second run").await, "still running");
    MISMATCH.assert_is(&case.send_while_held(&other, "no second run").await, "another body");
    case.open_gate();
    let first = first.response().await;
    assert_replay_of(&first, &request.send().await);
    MISMATCH.assert_is(&other.send().await, "another body, after the run");
    assert_replay_of(&first, &request.send().await);
    case.assert_runs(1, "refusals run nothing");
}

pub(super) async fn a_hang_up_does_not_end_the_work(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    drop(case.start_held(&request).await);
    case.send_unrelated_requests().await;
    case.open_gate();
    case.wait_ended().await;
    assert_eq!(
        case.runs()[0].state,
        RunState::Answered,
        "the work goes on when its caller hangs up"
    );
    let again = request.send().await;
    case.assert_runs(1, "a retry after a hang-up does not run");
    assert!(again.is_replay(), "a retry after a hang-up gets the outcome: {again:?}");
    assert_eq!(again.body, r#"{"run":1}"#, "a retry after a hang-up gets the first run's body");
}

pub(super) async fn waiters_outlast_the_first_caller(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let first = case.start_held(&request).await;
    let mut waiters = join_all((0..10).map(|_| request.start())).await;
    case.send_unrelated_requests().await;
    drop((first, waiters.pop()));
    case.send_unrelated_requests().await;
    case.open_gate();
    for answer in answers(waiters).await {
        assert_eq!(answer.status, 200, "a waiter gets the outcome, although others disconnected");
        assert_eq!(answer.body, r#"{"run":1}"#, "a waiter gets the first run's body");
    }
    case.assert_runs(1, "a hang-up does not make another one run");
}

pub(super) async fn many_keys_at_once_do_not_mix(case: CaseContext<'_>) {
    let requests = (0..50).map(|key| case.post(PLAIN).set(KEY, format!("{key}-{}", case.id)));
    let twice = requests.flat_map(|request| [request.clone(), request]).collect::<Vec<_>>();
    let answers = join_all(twice.iter().map(TestRequest::send)).await;
    case.assert_runs(50, "every key runs once");
    let bodies: BTreeSet<_> = answers.iter().map(|answer| &answer.body).collect();
    assert_eq!(bodies.len(), 50, "every key has an outcome of its own");
    for pair in answers.chunks(2) {
        assert_eq!(pair[0].body, pair[1].body, "both requests of a key get its outcome");
    }
}

pub(super) async fn waiters_share_a_failure(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let owner = case.start_held(&request.clone().set(STATUS, "503")).await;
    let waiters = join_all((0..10).map(|_| request.start())).await;
    case.send_unrelated_requests().await;
    case.open_gate();
    let owner = owner.response().await;
    for waiter in answers(waiters).await {
        assert_eq!(waiter.status, 503, "a waiter of a failed run gets its answer");
        assert_eq!(waiter.body, owner.body, "a waiter of a failed run gets its body");
    }
    case.assert_runs(1, "the waiters of a failed run do not run");
    assert_eq!(request.send().await.status, 200, "only a new request tries again");
    case.assert_runs(2, "only a new request tries again");
}
