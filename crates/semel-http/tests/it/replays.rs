//! What a replay shows of the first answer.

use axum::{Router, http::HeaderName, routing::post};
use semel_http::RoutePolicy;

use crate::scene::{answer, builder, charge, text};

#[tokio::test]
async fn a_header_is_kept_where_the_policy_names_it_and_no_other() {
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

/// They describe a body that is not there. What else is kept still holds.
#[tokio::test]
async fn a_replay_without_its_body_has_no_header_that_describes_it() {
    const OF_THE_BODY: [&str; 3] = ["content-type", "content-encoding", "content-language"];
    let handler = || async {
        let of_the_answer = [("etag", "\"7\"")];
        (of_the_answer, OF_THE_BODY.map(|name| (name, "text/plain")), "done")
    };
    for (policy, kept) in [(RoutePolicy::api(), true), (RoutePolicy::api().stream(), false)] {
        let layer = builder().policy(policy).build().unwrap();
        let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
        assert_eq!(text(answer(&service, charge("a")).await).await, "done");
        let replay = answer(&service, charge("a")).await;
        assert_eq!(replay.headers()["etag"], "\"7\"");
        for name in OF_THE_BODY {
            assert_eq!(replay.headers().contains_key(name), kept, "{name}");
        }
        assert_eq!(replay.headers().contains_key("idempotency-body"), !kept);
    }
}
