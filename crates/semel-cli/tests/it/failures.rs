//! Upstreams that fail: the client and later callers get a truthful response.

use crate::harness::{
    ClientResponse, GatewayProcess, Reserved, ScriptedReply, Setup, TestRequest, TestUpstream,
    until,
};

const CONFIG: &str = "
backoff = \"50ms\"
wait = \"2s\"
[timeouts]
header = \"400ms\"
body = \"400ms\"
[[routes]]
match = \"POST /hold\"
on_lost_owner = \"hold\"
";

async fn gateway(upstream: &TestUpstream) -> GatewayProcess {
    Setup::to(upstream).config(CONFIG).start().await
}

fn hold() -> TestRequest {
    TestRequest::post("/hold").key("k").body("5 EUR")
}

/// Fails this way at first, and answers the second attempt.
async fn failing_at_first(failure: ScriptedReply) -> TestUpstream {
    TestUpstream::start(move |received| match received.number {
        1 => failure.clone(),
        number => ScriptedReply::ok(format!("run {number}")),
    })
    .await
}

/// Asks again until the key has rested.
async fn ask_again(gateway: &GatewayProcess) -> ClientResponse {
    let mut last = None;
    until("it runs again", async || {
        let response = gateway.request(TestRequest::charge("k")).await;
        // A request that arrives while the failed attempt is being settled gets its result.
        let early = [Some("in-progress"), Some("attempt-failed")];
        let done = !early.contains(&response.problem());
        last = Some(response);
        done
    })
    .await;
    last.unwrap()
}

/// In rerun mode the next attempt has the same downstream key and the attempt number 2.
async fn runs_again(upstream: &TestUpstream, gateway: &GatewayProcess) {
    ask_again(gateway).await.assert_ran("run 2");
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 2");
    let received = upstream.received();
    assert_eq!(received.len(), 2);
    assert_eq!((received[0].attempt(), received[1].attempt()), (Some("1"), Some("2")));
    assert!(received[0].key().is_some() && received[0].key() == received[1].key(), "{received:?}");
}

/// In hold mode the operation does not run again.
async fn is_unknown(upstream: &TestUpstream, gateway: &GatewayProcess) {
    for _ in 0..2 {
        gateway.request(hold()).await.assert_problem(409, "outcome-unknown");
    }
    assert_eq!(upstream.count(), 1);
}

/// The first is answered so, on rerun and without a key, and on hold that the outcome is unknown; the next as it
/// should.
async fn fails(failure: ScriptedReply, status: u16, name: &str) {
    let upstream = failing_at_first(failure.clone()).await;
    let rerun = gateway(&upstream).await;
    rerun.request(TestRequest::charge("k")).await.assert_problem(status, name);
    runs_again(&upstream, &rerun).await;

    let upstream = failing_at_first(failure.clone()).await;
    let held = gateway(&upstream).await;
    let first = held.request(hold()).await;
    first.assert_problem(409, "outcome-unknown");
    assert_eq!(first.header("stripe-should-retry"), Some("false"), "{first:?}");
    assert_eq!(first.header("retry-after"), None, "{first:?}");
    assert!(first.text().contains("The upstream "), "it says what happened: {first:?}");
    is_unknown(&upstream, &held).await;

    let upstream = failing_at_first(failure).await;
    let plain = gateway(&upstream).await;
    // The gateway does not repeat a request that may have had an effect.
    plain.request(TestRequest::post("/orders").body("5 EUR")).await.assert_problem(status, name);
    plain.request(TestRequest::get("/orders")).await.assert_ran("run 2");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_leaves_the_key_free() {
    for path in ["/orders/7", "/hold"] {
        let place = Reserved::new();
        let url = format!("http://{}", place.address());
        let gateway = Setup::new().flag("--upstream", &url).config(CONFIG).start().await;
        let request = |body: &str| TestRequest::post(path).key("k").body(body);
        gateway.request(request("5 EUR")).await.assert_problem(502, "upstream-unreachable");
        gateway.request(request("6 EUR")).await.assert_problem(502, "upstream-unreachable");
        let get = gateway.request(TestRequest::get("/orders")).await;
        get.assert_problem(502, "upstream-unreachable");
        let upstream =
            place.start(|received| ScriptedReply::ok(format!("run {}", received.number)));
        gateway.request(request("7 EUR")).await.assert_ran("run 1");
        assert_eq!(upstream.only().body, b"7 EUR");
    }
}

#[tokio::test]
async fn an_upstream_that_resets_has_failed() {
    fails(ScriptedReply::nothing().reset(), 502, "upstream-failed").await;
}

#[tokio::test]
async fn an_upstream_that_closes_without_a_response_has_failed() {
    fails(ScriptedReply::nothing().close(), 502, "upstream-failed").await;
}

#[tokio::test]
async fn an_upstream_with_an_unreadable_response_has_failed() {
    fails(
        ScriptedReply::nothing().write("SSH-2.0-OpenSSH_9.2\r\n\r\n").close(),
        502,
        "upstream-failed",
    )
    .await;
}

#[tokio::test]
async fn an_upstream_that_breaks_off_in_its_head_has_failed() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A";
    fails(ScriptedReply::nothing().write(head).close(), 502, "upstream-failed").await;
}

#[tokio::test]
async fn a_response_with_ambiguous_framing_is_refused() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!";
    fails(ScriptedReply::nothing().write(head).close(), 502, "upstream-failed").await;
}

#[tokio::test]
async fn a_silent_upstream_times_out() {
    fails(ScriptedReply::nothing().stall(), 504, "upstream-timeout").await;
}

#[tokio::test]
async fn an_upstream_that_stops_in_its_head_times_out() {
    let head = "HTTP/1.1 200 OK\r\nX-A";
    fails(ScriptedReply::nothing().write(head).stall(), 504, "upstream-timeout").await;
}

/// A response that has begun cannot be taken back: the client sees that it breaks off, or gets an error instead.
async fn breaks_off(failure: ScriptedReply) {
    let is_broken = |response: Option<ClientResponse>| {
        response.is_none_or(|it| !it.whole || it.status == 502 || it.status == 504)
    };
    let upstream = failing_at_first(failure.clone()).await;
    let rerun = gateway(&upstream).await;
    assert!(is_broken(rerun.send(TestRequest::charge("k")).await.read_response().await));
    runs_again(&upstream, &rerun).await;

    let upstream = failing_at_first(failure.clone()).await;
    let held = gateway(&upstream).await;
    assert!(is_broken(held.send(hold()).await.read_response().await));
    is_unknown(&upstream, &held).await;

    let upstream = failing_at_first(failure).await;
    let plain = gateway(&upstream).await;
    assert!(is_broken(plain.send(TestRequest::get("/orders")).await.read_response().await));
    plain.request(TestRequest::get("/orders")).await.assert_ran("run 2");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_passed_off_as_whole() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    breaks_off(ScriptedReply::nothing().write(head).close()).await;
}

#[tokio::test]
async fn chunks_that_break_off_are_not_passed_off_as_whole() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    breaks_off(ScriptedReply::nothing().write(head).close()).await;
}

#[tokio::test]
async fn a_body_that_stops_is_not_waited_for() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    breaks_off(ScriptedReply::nothing().write(head).stall()).await;
}

/// The upstream's own failure, as opposed to the connection's.
#[tokio::test]
async fn a_server_error_is_passed_on() {
    let upstream = failing_at_first(ScriptedReply::status(500, "no")).await;
    let rerun = gateway(&upstream).await;
    let response = rerun.request(TestRequest::charge("k")).await;
    assert_eq!((response.status, &*response.text(), response.problem()), (500, "no", None));
    runs_again(&upstream, &rerun).await;
}

#[tokio::test]
async fn a_server_error_on_hold_is_the_outcome() {
    let upstream = failing_at_first(ScriptedReply::status(500, "no")).await;
    let held = gateway(&upstream).await;
    for replayed in [false, true] {
        let response = held.request(hold()).await;
        assert_eq!((response.status, &*response.text()), (500, "no"));
        assert_eq!(response.is_replay(), replayed);
    }
}

/// A client that goes away does not take its operation with it.
#[tokio::test]
async fn a_client_that_hangs_up_does_not_stop_its_operation() {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).start().await;
    let connection = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    drop(connection);
    upstream.open_gate();
    gateway.request(TestRequest::charge("k")).await.assert_replay("run 1");
}
