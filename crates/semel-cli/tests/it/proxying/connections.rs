//! Connections to the upstream are reused, and a stale one fails no request.

use std::time::Duration;

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, until};

#[tokio::test]
async fn many_requests_need_few_connections() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for number in 0..30 {
        assert_eq!(gateway.request(TestRequest::get("/orders")).await.status, 200);
        assert_eq!(gateway.request(TestRequest::post("/orders").body("5 EUR")).await.status, 200);
        assert_eq!(gateway.request(TestRequest::charge(&number.to_string())).await.status, 200);
    }
    assert_eq!(upstream.count(), 90);
    assert!(upstream.connections() <= 5, "{}", upstream.connections());
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_not_used_again() {
    let upstream = TestUpstream::start(|received| {
        ScriptedReply::ok(format!("run {}", received.number)).close()
    })
    .await;
    let gateway = Setup::to(&upstream).start().await;
    for number in 1..=20 {
        until("the last one is closed", async || upstream.open() == 0).await;
        gateway
            .request(TestRequest::charge(&number.to_string()))
            .await
            .assert_ran(&format!("run {number}"));
    }
    // At its start, the gateway makes one more connection to check the upstream.
    assert!(upstream.connections() <= 21, "{}", upstream.connections());
    assert_eq!(upstream.count(), 20);
}

#[tokio::test]
async fn a_connection_that_the_upstream_announced_to_close_is_not_used_again() {
    let upstream =
        TestUpstream::start(|_| ScriptedReply::with(200, "Connection: close\r\n", "hello").close())
            .await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    for number in 0..20 {
        connection.write(TestRequest::charge(&number.to_string()).bytes()).await;
        let response = connection.read_response().await.unwrap();
        response.assert_ran("hello");
        assert_ne!(response.header("connection"), Some("close"), "that was between those two");
    }
}

#[tokio::test]
async fn an_idle_connection_to_the_upstream_is_closed() {
    let upstream = TestUpstream::counting().await;
    let config = "[timeouts]\nidle = \"200ms\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    gateway.request(TestRequest::get("/orders")).await.assert_ran("run 1");
    until("it is closed", async || upstream.open() == 0).await;
    gateway.request(TestRequest::charge("a")).await.assert_ran("run 2");
}

/// A response that broke off, or was not read to its end, leaves bytes on the connection.
#[tokio::test]
async fn a_connection_with_something_left_on_it_is_not_used_again() {
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/two" => {
            ScriptedReply::ok("one").write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        }
        _ => ScriptedReply::ok("hello"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    for _ in 0..10 {
        gateway.request(TestRequest::get("/two")).await.assert_ran("one");
        // The rest has to arrive before the gateway can notice it.
        tokio::time::sleep(Duration::from_millis(20)).await;
        gateway.request(TestRequest::get("/orders")).await.assert_ran("hello");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_lets_go_of_a_stream() {
    let upstream = TestUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
        ScriptedReply::nothing().write(head).gate().write("x".repeat(95))
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.send(TestRequest::get("/orders")).await;
    assert_eq!(connection.read_head().await.unwrap().status, 200);
    drop(connection);
    upstream.open_gate();
    gateway.request(TestRequest::get("/orders")).await;
    assert_eq!(upstream.count(), 2);
}
