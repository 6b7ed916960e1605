//! Responses of every kind are forwarded unchanged.

use crate::harness::{ScriptedReply, Setup, TestRequest, TestUpstream, until};

#[tokio::test]
async fn a_redirect_is_the_clients_to_follow() {
    let upstream =
        TestUpstream::start(|_| ScriptedReply::with(302, "Location: /elsewhere\r\n", "moved"))
            .await;
    let gateway = Setup::to(&upstream).start().await;
    for request in [
        TestRequest::get("/orders"),
        TestRequest::post("/orders"),
        TestRequest::charge("k"),
        TestRequest::charge("k"),
    ] {
        let response = gateway.request(request).await;
        assert_eq!((response.status, response.header("location")), (302, Some("/elsewhere")));
    }
    assert_eq!(upstream.count(), 3);
    assert!(upstream.received().iter().all(|received| received.target != "/elsewhere"));
}

/// The connection stays usable after a response that has a length and no body.
#[tokio::test]
async fn the_response_to_head_has_no_body() {
    let upstream = TestUpstream::start(|received| match &*received.method {
        "HEAD" => ScriptedReply::nothing().write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        _ => ScriptedReply::ok("hello"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    for _ in 0..2 {
        connection.write(TestRequest::head_of("/orders").bytes()).await;
        let response = connection.read_head().await.unwrap();
        assert_eq!((response.status, response.header("content-length")), (200, Some("5")));
        connection.write(TestRequest::get("/orders").bytes()).await;
        connection.read_response().await.unwrap().assert_ran("hello");
    }
    let methods: Vec<_> = upstream.received().into_iter().map(|received| received.method).collect();
    assert_eq!(methods, ["HEAD", "GET", "HEAD", "GET"]);
}

#[tokio::test]
async fn responses_without_a_body_have_none() {
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/204" => ScriptedReply::nothing().write("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
        "/304" => {
            ScriptedReply::nothing().write("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n")
        }
        _ => ScriptedReply::ok("hello"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut connection = gateway.connection().await;
    for (request, status) in [
        (TestRequest::get("/204"), 204),
        (TestRequest::get("/304"), 304),
        (TestRequest::post("/204"), 204),
        (TestRequest::post("/204").key("k"), 204),
        (TestRequest::post("/204").key("k"), 204),
        (TestRequest::get("/"), 200),
    ] {
        connection.write(request.bytes()).await;
        let response = connection.read_response().await.unwrap();
        assert_eq!(response.status, status, "{request:?}");
        assert!(response.header("transfer-encoding").is_none() || status == 200, "{response:?}");
    }
    assert_eq!(upstream.count(), 5);
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for (number, request) in
        [TestRequest::post("/orders").body("5 EUR"), TestRequest::charge("k")].iter().enumerate()
    {
        let request = request.clone().header("Expect", "100-continue");
        let mut connection = gateway.connection().await;
        connection.write(request.head()).await;
        assert_eq!(connection.read_any_response().await.unwrap().status, 100);
        connection.write("5 EUR").await;
        connection.read_response().await.unwrap().assert_ran(&format!("run {}", number + 1));
    }
    for received in upstream.received() {
        assert_eq!((received.header("expect"), &received.body[..]), (None, &b"5 EUR"[..]));
    }
}

/// The client would send a body that is not used.
#[tokio::test]
async fn a_refused_client_gets_no_100_continue() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).switch("--require-key").start().await;
    let mut connection = gateway.connection().await;
    connection
        .write(TestRequest::post("/orders").body("5 EUR").header("Expect", "100-continue").head())
        .await;
    let response = connection.read_any_response().await.unwrap();
    assert_eq!(response.status, 400, "{response:?}");
    assert_eq!(upstream.count(), 0);
}

/// 102 and 103 are forwarded or left out; the final response follows them.
#[tokio::test]
async fn interim_responses_of_the_upstream_are_not_the_response() {
    let upstream = TestUpstream::start(|_| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        ScriptedReply::nothing()
            .write(interim)
            .write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    for request in
        [TestRequest::get("/orders"), TestRequest::post("/orders"), TestRequest::charge("k")]
    {
        gateway.request(request).await.assert_ran("hello");
    }
}

#[tokio::test]
async fn a_recorded_failure_is_replayed_and_a_server_error_runs_again() {
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/sold-out" => ScriptedReply::with(402, "Content-Type: text/plain\r\n", "sold out"),
        _ => ScriptedReply::status(503, "later"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    for replayed in [false, true] {
        let response = gateway.request(TestRequest::post("/sold-out").key("k")).await;
        assert_eq!((response.status, &*response.text()), (402, "sold out"));
        assert_eq!(response.header("content-type"), Some("text/plain"));
        assert_eq!(response.is_replay(), replayed);
    }
    for _ in 0..2 {
        let response = gateway.request(TestRequest::post("/later").key("k")).await;
        assert_eq!((response.status, response.is_replay()), (503, false));
    }
    assert_eq!(upstream.count(), 3);
}

/// Two equal requests in flight: one runs, the other waits for it.
#[tokio::test]
async fn a_duplicate_waits_and_gets_the_same_response() {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut first = gateway.send(TestRequest::charge("k")).await;
    until("the first runs", async || upstream.count() == 1).await;
    let mut duplicate = gateway.send(TestRequest::charge("k")).await;
    upstream.open_gate();
    first.read_response().await.unwrap().assert_ran("run 1");
    duplicate.read_response().await.unwrap().assert_replay("run 1");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_duplicate_that_may_not_wait_gets_409_with_retry_after() {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).flag("--wait", "0s").start().await;
    let mut first = gateway.send(TestRequest::charge("k")).await;
    until("the first runs", async || upstream.count() == 1).await;
    let duplicate = gateway.request(TestRequest::charge("k")).await;
    duplicate.assert_problem(409, "in-progress");
    assert!(duplicate.header("retry-after").is_some());
    upstream.open_gate();
    first.read_response().await.unwrap().assert_ran("run 1");
}
