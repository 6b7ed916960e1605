//! The downstream key, by which an upstream can deduplicate.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, until};

/// Eight, four, four, four and twelve hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|it| it == '-' || it.is_ascii_hexdigit())
}

/// Fails the attempts at every key before the one with this number.
async fn failing(until: &'static str) -> TestUpstream {
    TestUpstream::start(move |received| match received.attempt() {
        Some(attempt) if attempt == until => ScriptedReply::ok("done"),
        _ => ScriptedReply::status(500, "no"),
    })
    .await
}

#[tokio::test]
async fn the_upstream_gets_a_key_of_the_gateways_own() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let response = gateway.request(TestRequest::charge("mine")).await;
    assert_eq!(response.header("idempotency-key"), Some("mine"));
    let received = upstream.only();
    assert_eq!(received.all("idempotency-key").len(), 1);
    assert!(received.key().is_some_and(is_uuid), "{received:?}");
    assert_eq!(received.attempt(), Some("1"));
    let token = received.header("semel-token").and_then(|token| token.parse::<u64>().ok());
    assert!(token.is_some(), "{received:?}");
}

#[tokio::test]
async fn the_key_is_the_same_over_attempts_which_are_counted() {
    let upstream = failing("3").await;
    let gateway = Setup::to(&upstream).start().await;
    for status in [500, 500, 200] {
        assert_eq!(gateway.request(TestRequest::charge("a")).await.status, status);
    }
    gateway.request(TestRequest::charge("a")).await.assert_replay("done");
    let received = upstream.received();
    let attempts: Vec<_> = received.iter().filter_map(|received| received.attempt()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    assert!(received.iter().all(|it| it.key() == received[0].key()), "{received:?}");
    let token =
        |index: usize| received[index].header("semel-token").unwrap().parse::<u64>().unwrap();
    assert!(token(0) < token(1) && token(1) < token(2), "{received:?}");
}

#[tokio::test]
async fn two_callers_with_the_same_key_have_two_downstream_keys() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).flag("--principal", "authorization").start().await;
    for credential in ["Bearer a", "Bearer b"] {
        let response =
            gateway.request(TestRequest::charge("k").header("Authorization", credential)).await;
        assert!(!response.is_replay());
    }
    let received = upstream.received();
    assert_ne!(received[0].key(), received[1].key());
}

#[tokio::test]
async fn two_operations_with_the_same_key_have_two_downstream_keys() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for request in [
        TestRequest::post("/a").key("k"),
        TestRequest::post("/b").key("k"),
        TestRequest::method("PUT", "/a").key("k"),
    ] {
        assert!(!gateway.request(request).await.is_replay());
    }
    let keys: std::collections::HashSet<_> =
        upstream.received().iter().map(|received| received.key().unwrap().to_owned()).collect();
    assert_eq!(keys.len(), 3);
}

/// A key is the same in quotes and without.
#[tokio::test]
async fn a_quoted_key_is_the_same_key() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.request(TestRequest::charge("\"k\"")).await.assert_replay("run 1");
}

#[tokio::test]
async fn a_request_without_a_key_gets_none() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::post("/orders").body("5 EUR")).await.assert_ran("run 1");
    gateway.request(TestRequest::post("/orders").body("5 EUR")).await.assert_ran("run 2");
    for received in upstream.received() {
        assert_eq!(
            (received.key(), received.attempt(), received.header("semel-token")),
            (None, None, None)
        );
    }
}

/// The client may expect that the request is protected.
#[tokio::test]
async fn a_key_on_a_method_that_is_not_protected_is_logged_once_for_each_route() {
    let upstream = TestUpstream::counting().await;
    let config = "[[routes]]\nmatch = \"/orders/{id}\"\n[[routes]]\nmatch = \"/refunds\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    let paths = ["/orders/1", "/orders/2", "/orders/3", "/reset/secret", "/refunds"];
    for (number, path) in paths.into_iter().enumerate() {
        let ran = format!("run {}", number + 1);
        gateway.request(TestRequest::get(path).key("k")).await.assert_ran(&ran);
    }
    until("the last is logged", async || gateway.stderr().contains("GET /refunds")).await;
    let log = gateway.stderr();
    assert_eq!(log.matches("GET /orders/{id}").count(), 1, "{log}");
    assert!(!log.contains("secret"), "{log}");
    assert!(log.contains("the key has no effect"), "{log}");
}

#[tokio::test]
async fn a_safe_request_keeps_its_key() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for number in 1..=2 {
        gateway
            .request(TestRequest::get("/orders").key("k"))
            .await
            .assert_ran(&format!("run {number}"));
    }
    for received in upstream.received() {
        assert_eq!((received.key(), received.attempt()), (Some("k"), None));
    }
}
