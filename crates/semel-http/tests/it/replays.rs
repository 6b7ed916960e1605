//! Which headers and which body a replay has.

use axum::{
    Router,
    http::{HeaderName, StatusCode},
    routing::post,
};
use semel_http::RoutePolicy;

use crate::harness::{answer, builder, charge, text};

#[tokio::test]
async fn a_custom_header_is_replayed_only_if_the_policy_names_it() {
    let handler = || async { ([("x-receipt", "7"), ("x-request-id", "1")], "done") };
    let policy = RoutePolicy::api().keep_header(HeaderName::from_static("x-receipt"));
    let layer = builder().policy(policy).build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    let first = answer(&service, charge("a")).await;
    assert_eq!(first.headers()["x-request-id"], "1");
    let replay = answer(&service, charge("a")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    assert_eq!(replay.headers()["x-receipt"], "7");
    assert!(!replay.headers().contains_key("x-request-id"));
}

/// An empty body is not valid JSON: a client that ignores the marker fails when it parses the body. It is not valid
/// gzip either: a client that fails to decode it would not see the marker.
#[tokio::test]
async fn a_replay_without_its_body_has_status_headers_and_the_length_of_the_body() {
    const KEPT: [(&str, &str); 4] = [
        ("content-type", "application/json"),
        ("content-language", "la"),
        ("etag", "\"7\""),
        ("location", "/orders/7"),
    ];
    let handler =
        || async { (StatusCode::CREATED, KEPT, [("content-encoding", "gzip")], "zipped") };
    let small = RoutePolicy::api().max_response_bytes(5);
    for (policy, kept) in
        [(RoutePolicy::api(), true), (RoutePolicy::api().stream(), false), (small, false)]
    {
        let layer = builder().policy(policy).build().unwrap();
        let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
        let first = answer(&service, charge("a")).await;
        assert!(!first.headers().contains_key("idempotency-body"));
        assert_eq!(text(first).await, "zipped");
        let replay = answer(&service, charge("a")).await;
        assert_eq!(replay.status(), StatusCode::CREATED);
        for (name, value) in KEPT {
            assert_eq!(replay.headers()[name], value);
        }
        let header = |name| replay.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("content-encoding"), kept.then_some("gzip"));
        assert_eq!(header("idempotency-body"), (!kept).then_some("omitted"));
        assert_eq!(header("idempotency-body-length"), (!kept).then_some("6"));
        assert_eq!(text(replay).await, if kept { "zipped" } else { "" });
    }
}
