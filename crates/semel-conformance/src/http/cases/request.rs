//! The request that the handler gets.

use crate::http::{
    context::{AUTHORIZATION, CONTENT_TYPE, CaseContext},
    routes::{ITEM, PLAIN},
};

pub(super) async fn the_handler_gets_the_request_as_sent(case: CaseContext<'_>) {
    let target = "/test/items/a%20b?q=1&q=%2F&empty=";
    let body: Vec<u8> = (0..=u8::MAX).collect();
    let request = case.post(target).with("x-own", "one").with("x-own", "two, three");
    request.set(CONTENT_TYPE, "application/octet-stream").body(body.clone()).send().await;
    let run = case.runs().swap_remove(0);
    assert_eq!(run.method, "POST", "the handler gets the method");
    assert_eq!(run.target, target, "the handler gets path and query as they were");
    assert_eq!(run.body, body, "the handler gets the body byte for byte");
    assert_eq!(run.headers[CONTENT_TYPE], "application/octet-stream", "and its type");
    assert_eq!(run.headers[AUTHORIZATION], case.alice(), "the handler gets the credentials");
    let own: Vec<_> = run.headers.get_all("x-own").iter().collect();
    assert_eq!(own, ["one", "two, three"], "the handler gets every line of a header");
}

pub(super) async fn request_trailers_reach_the_handler(case: CaseContext<'_>) {
    case.post(ITEM).trailer("x-sum", "42").send().await;
    let run = case.runs().swap_remove(0);
    let trailers = run.trailers.expect("the handler gets trailers");
    assert_eq!(trailers["x-sum"], "42", "the handler gets the trailers that were sent");
}

pub(super) async fn half_a_request_does_not_run(case: CaseContext<'_>) {
    let request = case.post(PLAIN);
    for half in
        [request.clone().breaks_off(), request.clone().chunks(["{\"amount\"", ":1}"]).breaks_off()]
    {
        // A caller that breaks its request off may get an answer or none.
        drop(half.try_send().await);
    }
    case.send_unrelated_requests().await;
    case.assert_runs(0, "half a request does not run");
    assert_eq!(request.send().await.status, 200, "half a request leaves its key free");
}

pub(super) async fn a_marker_in_the_request_changes_nothing(case: CaseContext<'_>) {
    let request = case.post(PLAIN).with("idempotent-replayed", "true").with("x-hit", "1");
    case.send_and_replay(&request).await;
}
