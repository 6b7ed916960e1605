//! Which differences between two requests with one key are a mismatch.

use crate::http::{
    TestRequest,
    context::{CONTENT_TYPE, CaseContext, assert_replay_of},
    expected_problem::{MISMATCH, MISMATCH_422},
    routes::{CANONICAL, ITEM, LARGE, PLAIN, UNPROCESSABLE},
};

pub(super) async fn another_body_is_refused(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    differ(&case, &request, &request.clone().body(r#"{"amount":2}"#), "another body").await;
}

pub(super) async fn no_body_is_another_body(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    differ(&case, &request, &request.clone().body(""), "no body").await;
}

pub(super) async fn another_path_parameter_is_refused(case: CaseContext<'_>) {
    let request = case.post(ITEM);
    differ(&case, &request, &request.clone().to("/test/items/2"), "another path parameter").await;
}

pub(super) async fn another_query_is_refused(case: CaseContext<'_>) {
    let request = case.post("/test/plain?to=1");
    differ(&case, &request, &request.clone().to("/test/plain?to=2"), "another query").await;
}

pub(super) async fn another_content_type_is_refused(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let other = request.clone().set(CONTENT_TYPE, "text/plain");
    differ(&case, &request, &other, "another content type").await;
}

pub(super) async fn another_content_encoding_is_refused(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let other = request.clone().set("content-encoding", "gzip");
    differ(&case, &request, &other, "another content encoding").await;
}

pub(super) async fn another_overridden_method_is_refused(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    let other = request.clone().set("x-http-method-override", "DELETE");
    differ(&case, &request, &other, "another overridden method").await;
}

pub(super) async fn another_spelling_of_a_path_is_the_same_path(case: CaseContext<'_>) {
    let request = case.post("/test/items/a%2Fb");
    let first = request.send().await;
    assert_replay_of(&first, &request.clone().to("/test/items/%61%2f%62").send().await);
    case.assert_runs(1, "another spelling of a path is no other request");
}

pub(super) async fn chunked_bodies_are_compared(case: CaseContext<'_>) {
    let request = case.post(PLAIN).chunks(["{\"amount\"", ":1}"]);
    differ(&case, &request, &request.clone().chunks(["{\"amount\"", ":2}"]), "another chunk").await;
}

pub(super) async fn framing_does_not_matter(case: CaseContext<'_>) {
    let first = case.post(PLAIN).send().await;
    let chunked = case.post(PLAIN).chunks(["{\"am", "ount\":1", "}"]).send().await;
    assert_replay_of(&first, &chunked);
    case.assert_runs(1, "the same bytes in chunks are the same request");
}

pub(super) async fn the_last_byte_counts(case: CaseContext<'_>) {
    large(&case, PLAIN, 900 << 10).await;
}

pub(super) async fn the_last_byte_counts_beyond_a_mebibyte(case: CaseContext<'_>) {
    large(&case, LARGE, 2 << 20).await;
}

async fn large(case: &CaseContext<'_>, route: &str, size: usize) {
    let body = |last: &str| format!("{}{last}", "x".repeat(size - 1));
    let request = case.post(route).set(CONTENT_TYPE, "text/plain");
    differ(case, &request.clone().body(body("1")), &request.body(body("2")), "another last byte")
        .await;
}

pub(super) async fn a_mismatch_can_be_unprocessable(case: CaseContext<'_>) {
    let request = case.post(UNPROCESSABLE);
    request.send().await;
    let refused = request.clone().body("{}").send().await;
    MISMATCH_422.assert_is(&refused, "this route answers a mismatch with 422");
    case.assert_runs(1, "a mismatch does not run");
}

pub(super) async fn canonical_json_has_one_spelling(case: CaseContext<'_>) {
    let request = case.post(CANONICAL);
    let first = request.clone().body(r#"{"a":1,"b":{"c":2,"d":3},"sent_at":"now"}"#).send().await;
    let spelt = r#"{ "sent_at": "later", "b": {"d": 3, "c": 2}, "a": 1 }"#;
    assert_replay_of(&first, &request.body(spelt).send().await);
    case.assert_runs(1, "order, space and left-out fields make no other request");
}

pub(super) async fn canonical_json_keeps_every_digit(case: CaseContext<'_>) {
    let request = case.post(CANONICAL).body(r#"{"id":9007199254740993}"#);
    let other = request.clone().body(r#"{"id":9007199254740992}"#);
    differ(&case, &request, &other, "another big integer").await;
}

/// Asserts that the target refuses `other` after `request`, and still replays `request`.
async fn differ(case: &CaseContext<'_>, request: &TestRequest, other: &TestRequest, what: &str) {
    let first = request.send().await;
    assert!(first.status.is_success(), "the first request is served: {first:?}");
    MISMATCH.assert_is(&other.send().await, &format!("{what} under a used key is refused"));
    case.assert_runs(1, &format!("{what} under a used key does not run"));
    assert_replay_of(&first, &request.send().await);
}
