//! HTTP/1.1, and HTTP/1.0 where its rules are unambiguous.

use super::{FramingStage, HIDDEN};
use crate::harness::until;

fn old(method: &str, lines: &str) -> String {
    format!("{method} /orders HTTP/1.0\r\nHost: shop.example\r\n{lines}\r\n")
}

#[tokio::test]
async fn a_body_without_a_length_in_http_1_0_is_refused() {
    let stage = FramingStage::set().await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for lines in ["", "Connection: keep-alive\r\n", "Idempotency-Key: k\r\n"] {
            let response = stage.refuses(old(method, lines) + HIDDEN, &[411]).await;
            response.assert_problem(411, "length-required");
        }
    }
}

#[tokio::test]
async fn http_1_0_is_served_and_closed() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    connection.write(old("GET", "")).await;
    assert_eq!(connection.read_response().await.unwrap().text(), "run 1");
    connection.assert_closed("the client did not ask to keep it").await;
    let mut connection = stage.gateway.connection().await;
    connection.write(old("POST", "Content-Length: 5\r\n") + "5 EUR").await;
    assert_eq!(connection.read_response().await.unwrap().text(), "run 2");
}

#[tokio::test]
async fn http_1_0_needs_no_host() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    connection.write("GET /orders HTTP/1.0\r\n\r\n").await;
    assert_eq!(connection.read_response().await.unwrap().status, 200);
}

#[tokio::test]
async fn http_1_0_is_never_answered_in_chunks() {
    use crate::harness::{ScriptedReply, Setup, TestUpstream};
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let upstream = TestUpstream::start(move |_| ScriptedReply::nothing().write(chunked)).await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    connection.write(old("GET", "Connection: keep-alive\r\n")).await;
    let response = connection.read_response().await.unwrap();
    assert_eq!(response.header("transfer-encoding"), None, "{response:?}");
    assert_eq!(response.text(), "hello");
}

#[tokio::test]
async fn http_0_9_is_refused() {
    let stage = FramingStage::set().await;
    stage.refuses_somehow(format!("GET /orders\r\n\r\n{HIDDEN}"), &[400, 505]).await;
    stage.refuses_somehow(format!("GET /orders HTTP/0.9\r\n\r\n{HIDDEN}"), &[400, 505]).await;
}

#[tokio::test]
async fn another_version_is_refused() {
    let stage = FramingStage::set().await;
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/1.10", "HTTP/3", "HTTP/11", "HTTPS/1.1"] {
        let bytes = format!("GET /orders {version}\r\nHost: shop.example\r\n\r\n{HIDDEN}");
        stage.refuses_somehow(bytes, &[400, 505]).await;
    }
}

#[tokio::test]
async fn the_preface_of_http_2_is_refused() {
    let stage = FramingStage::set().await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // A reply in HTTP/2: empty SETTINGS, then GOAWAY with HTTP_1_1_REQUIRED (RFC 9113, 7).
    let goaway = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0d";
    for _ in 0..3 {
        let mut connection = stage.gateway.connection().await;
        connection.write(format!("{preface}{HIDDEN}")).await;
        connection.read_bytes(goaway).await;
        connection.assert_closed("HTTP/2").await;
    }
    stage.assert_nothing_came_of("HTTP/2").await;
    is_named_once(&stage, "HTTP/2").await;
}

/// Many clients with the same mistake give one warning in the log.
async fn is_named_once(stage: &FramingStage, protocol: &str) {
    let log = || stage.gateway.stderr();
    let words = format!("a client speaks {protocol}");
    until("it is named", async || log().contains(&words)).await;
    assert_eq!(log().matches(&words).count(), 1, "{}", log());
    assert!(!log().contains("it cannot be read"), "{}", log());
}

#[tokio::test]
async fn tls_on_the_plain_port_is_refused_and_named() {
    let stage = FramingStage::set().await;
    // How a ClientHello begins.
    let hello = b"\x16\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03\xa5\xa5GET / HTTP/1.1\r\n\r\n";
    for _ in 0..3 {
        // Several TLS clients recognise this response.
        stage.refuses(hello, &[400]).await;
    }
    is_named_once(&stage, "TLS").await;
}

/// The gateway does not upgrade the connection, but serves the request.
#[tokio::test]
async fn an_upgrade_is_not_made() {
    let stage = FramingStage::set().await;
    for upgrade in ["h2c", "websocket"] {
        let lines = format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n");
        let lines = format!("{lines}HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n");
        let mut connection = stage.gateway.connection().await;
        connection
            .write(format!("GET /orders HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n"))
            .await;
        assert_eq!(connection.read_any_response().await.unwrap().status, 200, "{upgrade}");
    }
    for received in stage.upstream.received() {
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(received.header(name).is_none_or(|it| it == "keep-alive"), "{received:?}");
        }
    }
}
