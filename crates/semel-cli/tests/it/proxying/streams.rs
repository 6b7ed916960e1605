//! Without a key, bodies are streamed in both directions.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, until};

const LARGE: usize = 20 << 20;

/// Bytes whose order can be checked.
fn large() -> Vec<u8> {
    (0..LARGE / 4).flat_map(|number: usize| u32::try_from(number).unwrap().to_le_bytes()).collect()
}

/// Asserts equality without printing twenty megabytes.
#[track_caller]
fn assert_large(bytes: &[u8]) {
    assert_eq!(bytes.len(), LARGE);
    assert!(bytes == large(), "other bytes than were sent");
}

#[tokio::test]
async fn the_upstream_sees_the_first_piece_before_the_last_is_sent() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/orders").body("first, last").head()).await;
    connection.write("first").await;
    until("the first piece is there", async || {
        upstream.received().first().is_some_and(|received| received.body == b"first")
    })
    .await;
    connection.write(", last").await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_eq!(upstream.only().body, b"first, last");
}

#[tokio::test]
async fn the_upstream_sees_the_first_chunk_before_the_last_is_sent() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/orders").chunked().head()).await;
    connection.write("5\r\nfirst\r\n").await;
    until("the first chunk is there", async || {
        upstream.received().first().is_some_and(|received| received.body == b"first")
    })
    .await;
    connection.write("6\r\n, last\r\n0\r\n\r\n").await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_eq!(upstream.only().body, b"first, last");
}

/// Sends the head and the first piece, and the last once the gate is open.
async fn sees_the_first_piece_first(head: &'static str, first: &'static str, last: &'static str) {
    for request in [TestRequest::get("/orders"), TestRequest::post("/orders").body("5 EUR")] {
        let upstream = TestUpstream::start(move |_| {
            let begun = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{first}");
            ScriptedReply::nothing().write(begun).gate().write(last).close()
        });
        let upstream = upstream.await;
        let gateway = Setup::to(&upstream).start().await;
        let mut connection = gateway.send(&request).await;
        let response = connection.read_head().await.unwrap();
        let chunked = response.header("transfer-encoding").is_some();
        connection.read_bytes(if chunked { b"5\r\nfirst\r\n" } else { b"first" }).await;
        upstream.open_gate();
        connection.read_bytes(if chunked { b"6\r\n, last\r\n" } else { b", last" }).await;
    }
}

#[tokio::test]
async fn the_client_sees_the_first_piece_before_the_last_is_there() {
    sees_the_first_piece_first("Content-Length: 11", "first", ", last").await;
}

#[tokio::test]
async fn the_client_sees_the_first_chunk_before_the_last_is_there() {
    let last = "6\r\n, last\r\n0\r\n\r\n";
    sees_the_first_piece_first("Transfer-Encoding: chunked", "5\r\nfirst\r\n", last).await;
}

#[tokio::test]
async fn the_client_sees_the_first_piece_of_a_response_without_a_length() {
    sees_the_first_piece_first("Connection: close", "first", ", last").await;
}

#[tokio::test]
async fn a_large_upload_without_a_key_arrives() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::post("/orders").body(large())).await.assert_ran("run 1");
    assert_large(&upstream.only().body);
}

#[tokio::test]
async fn a_large_download_without_a_key_arrives() {
    let upstream = TestUpstream::start(|_| ScriptedReply::ok(large())).await;
    let gateway = Setup::to(&upstream).start().await;
    for request in [TestRequest::get("/orders"), TestRequest::post("/orders").body("5 EUR")] {
        let response = gateway.request(request).await;
        assert_eq!((response.status, response.whole), (200, true));
        assert_large(&response.body);
    }
}

/// A response over the limit of replays: the first caller gets all of it, and a replay reports that it was not kept.
#[tokio::test]
async fn a_large_response_to_a_keyed_request_arrives() {
    let upstream = TestUpstream::start(|_| ScriptedReply::ok(large())).await;
    let gateway = Setup::to(&upstream).start().await;
    let response = gateway.request(TestRequest::charge("a")).await;
    assert_eq!((response.status, response.whole), (200, true));
    assert_large(&response.body);
    let replay = gateway.request(TestRequest::charge("a")).await;
    assert!(replay.is_replay() && replay.body.is_empty(), "{:?}", replay.headers);
    assert_eq!(replay.header("idempotency-body"), Some("omitted"));
    assert_eq!(replay.header("idempotency-body-length"), Some(&*response.body.len().to_string()));
    assert_eq!(replay.header("content-type"), response.header("content-type"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_trailers_of_a_response_arrive() {
    let upstream = TestUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        ScriptedReply::nothing().write(head).write("5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n")
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let request =
        TestRequest::get("/orders").header("TE", "trailers").header("Connection", "TE, close");
    let mut connection = gateway.send(request).await;
    assert_eq!(connection.read_head().await.unwrap().status, 200);
    let rest = connection.rest().await;
    let rest = String::from_utf8_lossy(&rest).to_lowercase();
    assert!(rest.contains("hello") && rest.contains("x-sum: 42"), "{rest}");
}
