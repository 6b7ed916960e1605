//! The wrong uses of a running gateway, one on each line: the request, the status, and what has to be said.

use crate::harness::{Ask, Setup, Upstream};

struct Row(Ask, u16, &'static [&'static str]);

#[tokio::test]
async fn a_wrong_request_is_told_with_its_status_and_the_fix() {
    let upstream = Upstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /by-body'\nkey_from = '/request_id'\n";
    let setup = Setup::to(&upstream).switch("--require-key").flag("--max-body", "20");
    let gateway = setup.config(routes).start().await;
    gateway.ask(Ask::charge("taken")).await.assert_ran("run 1");
    for Row(ask, status, says) in rows() {
        let answer = gateway.ask(&ask).await;
        let text = format!("{:?} {}", answer.headers, answer.text());
        assert_eq!(answer.status, status, "{ask:?}: {answer:?}");
        for word in says {
            assert!(text.contains(word), "{word:?} is missing: {ask:?}: {text}");
        }
    }
    assert_eq!(upstream.count(), 1, "none of them ran");
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        Row(Ask::post("/orders/7").body("5 EUR"), 400, &["key-missing", "Idempotency-Key"]),
        Row(Ask::charge(""), 400, &["key-invalid"]),
        Row(Ask::charge(&"k".repeat(2000)), 400, &["key-invalid"]),
        Row(Ask::charge("one").key("two"), 400, &["key-invalid"]),
        Row(Ask::post("/orders/7").key("taken").body("6 EUR"), 409, &["fingerprint-mismatch"]),
        Row(Ask::post("/orders/7").key("k").body("this is more than 20 bytes"), 413, &["body-too-large"]),
        Row(Ask::post("/by-body").body("{\"request_id\":[]}"), 400, &["key-invalid", "/request_id"]),
        Row(Ask::method("CONNECT", "/a").key("k"), 405, &["method-not-allowed"]),
        Row(Ask::post("/a/../b").key("k"), 400, &["target-invalid"]),
    ]
}
