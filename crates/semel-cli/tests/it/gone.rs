//! What a client leaves behind that breaks off, and what the log says of it all.

use crate::harness::{Ask, Reply, Setup, Upstream, until};

#[tokio::test]
async fn a_body_that_the_client_spoils_is_the_clients_failure() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.wire().await;
    wire.say([Ask::post("/orders").chunked().bytes(), b"5\r\nhello\r\n".to_vec()].concat()).await;
    until("it has begun", async || upstream.count() == 1).await;
    wire.say("no size\r\n").await;
    let answer = wire.hear().await;
    assert!(answer.as_ref().is_none_or(|it| it.status == 400), "{answer:?}");
    assert!(!gateway.stderr().contains("upstream failed"), "{}", gateway.stderr());
}

/// A stream that nobody reads any more is recorded all the same.
#[tokio::test]
async fn a_client_that_hangs_up_in_a_keyed_stream_does_not_stop_it() {
    let upstream = Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        Reply::nothing().write(head).gate().write("data: 2\n\n".repeat(1 << 20)).close()
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.send(Ask::charge("k")).await;
    assert_eq!(wire.hear_head().await.unwrap().status, 200);
    drop(wire);
    upstream.open_gate();
    let again = gateway.ask(Ask::charge("k")).await;
    assert!(again.is_replay(), "{:?}", again.headers);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_log_never_says_a_secret() {
    let upstream = Upstream::start(|seen| match &*seen.target {
        "/bad" => Reply::nothing().write("CANARY-nonsense\r\n\r\n").close(),
        "/long" => Reply::nothing().write("HTTP/1.1 200 OK\r\nX-A: CANARY\x01\r\n\r\n").close(),
        _ => Reply::ok("CANARY-answer"),
    })
    .await;
    let setup = Setup::to(&upstream).flag("--log", "trace");
    let gateway = setup.flag("--principal", "authorization").start().await;
    for target in ["/ok?CANARY-query", "/bad", "/long"] {
        for key in ["CANARY-key", "CANARY\u{e9}", "\"CANARY"] {
            let ask = Ask::post(target).key(key).header("Authorization", "Bearer CANARY-token");
            let ask = ask.header("Cookie", "a=CANARY-cookie").body("CANARY-body");
            let mut wire = gateway.send(ask).await;
            wire.hear().await;
        }
    }
    let mut wire = gateway.wire().await;
    wire.say("POST / HTTP/1.1\r\nHost: a\r\nCANARY\0: x\r\n\r\n").await;
    wire.hear().await;
    assert!(!gateway.stderr().contains("CANARY"), "{}", gateway.stderr());
}
