//! Clients that disconnect or send a malformed body, and what the log shows.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, until};

#[tokio::test]
async fn a_body_that_the_client_spoils_is_the_clients_failure() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    connection
        .write(
            [TestRequest::post("/orders").chunked().bytes(), b"5\r\nhello\r\n".to_vec()].concat(),
        )
        .await;
    until("it has begun", async || upstream.count() == 1).await;
    connection.write("no size\r\n").await;
    let response = connection.read_response().await;
    assert!(response.as_ref().is_none_or(|it| it.status == 400), "{response:?}");
    assert!(!gateway.stderr().contains("upstream failed"), "{}", gateway.stderr());
}

/// A stream is recorded even if its client has disconnected.
#[tokio::test]
async fn a_client_that_hangs_up_in_a_keyed_stream_does_not_stop_it() {
    let upstream = TestUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        ScriptedReply::nothing().write(head).gate().write("data: 2\n\n".repeat(1 << 20)).close()
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.send(TestRequest::charge("k")).await;
    assert_eq!(connection.read_head().await.unwrap().status, 200);
    drop(connection);
    upstream.open_gate();
    let again = gateway.request(TestRequest::charge("k")).await;
    assert!(again.is_replay(), "{:?}", again.headers);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_log_never_shows_a_secret() {
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/bad" => ScriptedReply::nothing().write("CANARY-nonsense\r\n\r\n").close(),
        "/long" => {
            ScriptedReply::nothing().write("HTTP/1.1 200 OK\r\nX-A: CANARY\x01\r\n\r\n").close()
        }
        _ => ScriptedReply::ok("CANARY-answer"),
    })
    .await;
    let setup = Setup::to(&upstream).flag("--log", "trace");
    let gateway = setup.flag("--principal", "authorization").start().await;
    for target in ["/ok?CANARY-query", "/bad", "/long"] {
        for key in ["CANARY-key", "CANARY\u{e9}", "\"CANARY"] {
            let request =
                TestRequest::post(target).key(key).header("Authorization", "Bearer CANARY-token");
            let request = request.header("Cookie", "a=CANARY-cookie").body("CANARY-body");
            let mut connection = gateway.send(request).await;
            connection.read_response().await;
        }
    }
    let mut connection = gateway.connection().await;
    connection.write("POST / HTTP/1.1\r\nHost: a\r\nCANARY\0: x\r\n\r\n").await;
    connection.read_response().await;
    assert!(!gateway.stderr().contains("CANARY"), "{}", gateway.stderr());
}
