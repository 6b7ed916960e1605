//! Wrong requests to a running gateway, one per line: the request, the status, and the words in the response.

use crate::harness::{Setup, TestRequest, TestUpstream};

struct RequestCase(TestRequest, u16, &'static [&'static str]);

#[tokio::test]
async fn a_wrong_request_is_reported_with_its_status_and_the_fix() {
    let upstream = TestUpstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /by-body'\nkey_from = '/request_id'\n";
    let setup = Setup::to(&upstream).switch("--require-key").flag("--max-body", "20");
    let gateway = setup.config(routes).start().await;
    gateway.request(TestRequest::charge("taken")).await.assert_ran("run 1");
    for RequestCase(request, status, says) in rows() {
        let response = gateway.request(&request).await;
        let text = format!("{:?} {}", response.headers, response.text());
        assert_eq!(response.status, status, "{request:?}: {response:?}");
        for word in says {
            assert!(text.contains(word), "{word:?} is missing: {request:?}: {text}");
        }
    }
    assert_eq!(upstream.count(), 1, "none of them ran");
}

#[rustfmt::skip]
fn rows() -> Vec<RequestCase> {
    vec![
        RequestCase(TestRequest::post("/orders/7").body("5 EUR"), 400, &["key-missing", "Idempotency-Key"]),
        RequestCase(TestRequest::charge(""), 400, &["key-invalid"]),
        RequestCase(TestRequest::charge(&"k".repeat(2000)), 400, &["key-invalid"]),
        RequestCase(TestRequest::charge("one").key("two"), 400, &["key-invalid"]),
        RequestCase(TestRequest::post("/orders/7").key("taken").body("6 EUR"), 409, &["fingerprint-mismatch"]),
        RequestCase(TestRequest::post("/orders/7").key("k").body("this is more than 20 bytes"), 413, &["body-too-large"]),
        RequestCase(TestRequest::post("/by-body").body("{\"request_id\":[]}"), 400, &["key-invalid", "/request_id"]),
        RequestCase(TestRequest::method("CONNECT", "/a").key("k"), 405, &["method-not-allowed"]),
        RequestCase(TestRequest::post("/a/../b").key("k"), 400, &["target-invalid"]),
    ]
}
