//! The upstream gets the client's address, host and protocol in headers that the client cannot set.

use crate::harness::{GatewayProcess, HOST, ReceivedRequest, Setup, TestRequest, TestUpstream};

async fn stage(config: &str) -> (TestUpstream, GatewayProcess) {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).config(config).start().await;
    (upstream, gateway)
}

fn spoofed(request: TestRequest) -> TestRequest {
    request
        .header("X-Forwarded-For", "203.0.113.7")
        .header("X-Forwarded-For", "203.0.113.8")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "evil.example")
        .header("Forwarded", "for=203.0.113.7;proto=https;host=evil.example")
}

#[track_caller]
fn assert_ours_alone(received: &ReceivedRequest) {
    assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(received.all("x-forwarded-proto"), ["http"]);
    assert_eq!(received.all("x-forwarded-host"), [HOST]);
    let forwarded = received.all("forwarded");
    assert_eq!(forwarded.len(), 1, "{received:?}");
    let mut parts: Vec<_> =
        forwarded[0].split(';').map(|part| part.trim().replace('"', "")).collect();
    parts.sort();
    assert_eq!(parts, ["for=127.0.0.1", &format!("host={HOST}"), "proto=http"]);
}

#[tokio::test]
async fn the_upstream_gets_the_clients_address() {
    let (upstream, gateway) = stage("").await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        assert_eq!(gateway.request(request).await.status, 200);
    }
    upstream.received().iter().for_each(assert_ours_alone);
}

#[tokio::test]
async fn forwarded_headers_of_the_client_are_replaced() {
    let (upstream, gateway) = stage("").await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        assert_eq!(gateway.request(spoofed(request)).await.status, 200);
    }
    upstream.received().iter().for_each(assert_ours_alone);
}

#[tokio::test]
async fn a_proxy_in_front_that_is_trusted_is_added_to() {
    let (upstream, gateway) = stage("trust_forwarded = true\n").await;
    for request in [TestRequest::get("/orders"), TestRequest::charge("k")] {
        assert_eq!(gateway.request(spoofed(request)).await.status, 200);
    }
    for received in upstream.received() {
        let joined = |name| received.all(name).join(", ");
        assert_eq!(joined("x-forwarded-for"), "203.0.113.7, 203.0.113.8, 127.0.0.1");
        assert!(joined("x-forwarded-proto").starts_with("https"), "{received:?}");
        assert!(joined("x-forwarded-host").starts_with("evil.example"), "{received:?}");
        let forwarded = joined("forwarded");
        let ours = forwarded.strip_prefix("for=203.0.113.7;proto=https;host=evil.example, ");
        assert!(ours.is_some_and(|ours| ours.contains("for=127.0.0.1")), "{forwarded}");
    }
}

/// A host with a port is not a token, so RFC 7239 requires quotes.
#[tokio::test]
async fn a_host_with_a_port_is_quoted_in_forwarded() {
    let (upstream, gateway) = stage("").await;
    gateway
        .request(TestRequest::get("/orders").host("shop.example:8080"))
        .await
        .assert_ran("run 1");
    let received = upstream.only();
    assert_eq!(received.all("x-forwarded-host"), ["shop.example:8080"]);
    let forwarded = received.header("forwarded").unwrap();
    assert!(forwarded.contains("host=\"shop.example:8080\""), "{forwarded}");
}
