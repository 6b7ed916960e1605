//! The answer to the first caller, and the answer to a retry.

use std::time::Instant;

use crate::http::{
    TestResponse,
    context::{CaseContext, KEY, assert_replay_of},
    routes::{BRIEF, BRIEF_RETENTION, PLAIN},
    upstream::header::{BODY, HEADER, STATUS, TRAILER},
};

pub(super) async fn the_first_answer_is_the_handlers(case: CaseContext<'_>) {
    let request = case.post(PLAIN).with(STATUS, "201").with(HEADER, "x-own: yes");
    let first = request.send().await;
    case.assert_runs(1, "a first request runs");
    assert_eq!(first.status, 201, "the first caller gets the handler's status");
    assert_eq!(first.body, r#"{"run":1}"#, "the first caller gets the handler's body");
    assert_eq!(first.text("x-own"), Some("yes"), "the first caller gets all of its headers");
    assert_eq!(first.text(KEY), Some(&*case.key()), "the key is echoed on a first answer too");
    assert!(!first.is_replay(), "a first answer is not marked as a replay");
}

pub(super) async fn a_retry_is_replayed_byte_for_byte(case: CaseContext<'_>) {
    let (_, again) = case.send_and_replay(&case.post(PLAIN).with(STATUS, "201")).await;
    assert_eq!(again.text(KEY), Some(&*case.key()), "the key is echoed on a replay");
}

pub(super) async fn a_hundred_retries_are_one_answer(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let first = request.send().await;
    for _ in 0..100 {
        assert_replay_of(&first, &request.send().await);
    }
    case.assert_runs(1, "no retry runs, however many come");
}

pub(super) async fn an_empty_body_is_replayed(case: CaseContext<'_>) {
    let (_, again) = case.send_and_replay(&case.post(PLAIN).with(BODY, "empty")).await;
    assert!(again.body.is_empty(), "an empty body is replayed as one");
    assert_eq!(again.text("idempotency-body"), None, "an empty body is not an omitted one");
}

pub(super) async fn no_content_is_replayed(case: CaseContext<'_>) {
    let (first, _) =
        case.send_and_replay(&case.post(PLAIN).with(STATUS, "204").with(BODY, "empty")).await;
    assert_eq!(first.status, 204, "the first caller gets the handler's status");
}

pub(super) async fn a_binary_body_is_replayed(case: CaseContext<'_>) {
    let (first, _) = case.send_and_replay(&case.post(PLAIN).with(BODY, "binary")).await;
    let sent: Vec<u8> = (0..=u8::MAX).rev().chain([1]).collect();
    assert_eq!(first.body, sent, "the first caller gets the handler's bytes");
}

pub(super) async fn a_redirect_is_replayed(case: CaseContext<'_>) {
    let request = case.post(PLAIN).with(STATUS, "303").with(HEADER, "location: /test/items/7");
    let (first, again) = case.send_and_replay(&request).await;
    assert_eq!(first.status, 303, "a redirect is for the caller to follow");
    assert_eq!(again.text("location"), Some("/test/items/7"), "a redirect keeps its target");
}

pub(super) async fn trailers_are_replayed(case: CaseContext<'_>) {
    let (first, again) = case.send_and_replay(&case.post(PLAIN).with(TRAILER, "x-sum: 42")).await;
    let sum = |answer: &TestResponse| answer.trailers.as_ref()?.get("x-sum").cloned();
    assert_eq!(sum(&first).expect("the first caller gets trailers"), "42");
    assert_eq!(sum(&again), sum(&first), "a replay has the recorded trailers");
}

pub(super) async fn an_expired_key_runs_again(case: CaseContext<'_>) {
    let request = case.post(BRIEF);
    let asked_at = Instant::now();
    request.send().await;
    let again = request.send().await;
    assert!(again.is_replay() || asked_at.elapsed() > BRIEF_RETENTION, "an outcome is kept");
    let fresh = case.send_until(&request, |answer| !answer.is_replay(), "an outcome expires").await;
    assert_eq!(fresh.status, 200, "an expired key runs like a new one");
    case.assert_runs(2, "an expired key runs again");
}
