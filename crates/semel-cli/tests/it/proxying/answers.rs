//! Answers of every kind come through as they are.

use crate::harness::{Ask, Reply, Setup, Upstream, until};

#[tokio::test]
async fn a_redirect_is_the_clients_to_follow() {
    let upstream = Upstream::start(|_| Reply::with(302, "Location: /elsewhere\r\n", "moved")).await;
    let gateway = Setup::to(&upstream).start().await;
    for ask in [Ask::get("/orders"), Ask::post("/orders"), Ask::charge("k"), Ask::charge("k")] {
        let answer = gateway.ask(ask).await;
        assert_eq!((answer.status, answer.header("location")), (302, Some("/elsewhere")));
    }
    assert_eq!(upstream.count(), 3);
    assert!(upstream.seen().iter().all(|seen| seen.target != "/elsewhere"));
}

/// The connection goes on behind an answer that has a length and no body.
#[tokio::test]
async fn the_answer_to_head_has_no_body() {
    let upstream = Upstream::start(|seen| match &*seen.method {
        "HEAD" => Reply::nothing().write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        _ => Reply::ok("hello"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.wire().await;
    for _ in 0..2 {
        wire.say(Ask::head_of("/orders").bytes()).await;
        let answer = wire.hear_head().await.unwrap();
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("5")));
        wire.say(Ask::get("/orders").bytes()).await;
        wire.hear().await.unwrap().assert_ran("hello");
    }
    let methods: Vec<_> = upstream.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["HEAD", "GET", "HEAD", "GET"]);
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let upstream = Upstream::start(|seen| match &*seen.target {
        "/204" => Reply::nothing().write("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
        "/304" => Reply::nothing().write("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        _ => Reply::ok("hello"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut wire = gateway.wire().await;
    for (ask, status) in [
        (Ask::get("/204"), 204),
        (Ask::get("/304"), 304),
        (Ask::post("/204"), 204),
        (Ask::post("/204").key("k"), 204),
        (Ask::post("/204").key("k"), 204),
        (Ask::get("/"), 200),
    ] {
        wire.say(ask.bytes()).await;
        let answer = wire.hear().await.unwrap();
        assert_eq!(answer.status, status, "{ask:?}");
        assert!(answer.header("transfer-encoding").is_none() || status == 200, "{answer:?}");
    }
    assert_eq!(upstream.count(), 5);
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).start().await;
    for (number, ask) in [Ask::post("/orders").body("5 EUR"), Ask::charge("k")].iter().enumerate() {
        let ask = ask.clone().header("Expect", "100-continue");
        let mut wire = gateway.wire().await;
        wire.say(ask.head()).await;
        assert_eq!(wire.hear_any().await.unwrap().status, 100);
        wire.say("5 EUR").await;
        wire.hear().await.unwrap().assert_ran(&format!("run {}", number + 1));
    }
    for seen in upstream.seen() {
        assert_eq!((seen.header("expect"), &seen.body[..]), (None, &b"5 EUR"[..]));
    }
}

/// It would only be sent to be thrown away.
#[tokio::test]
async fn a_client_that_waits_to_be_asked_is_not_asked_in_vain() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).switch("--require-key").start().await;
    let mut wire = gateway.wire().await;
    wire.say(Ask::post("/orders").body("5 EUR").header("Expect", "100-continue").head()).await;
    let answer = wire.hear_any().await.unwrap();
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(upstream.count(), 0);
}

/// 102 and 103 are passed on or left out; the answer comes behind them.
#[tokio::test]
async fn interim_answers_of_the_upstream_are_not_the_answer() {
    let upstream = Upstream::start(|_| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        Reply::nothing().write(interim).write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    for ask in [Ask::get("/orders"), Ask::post("/orders"), Ask::charge("k")] {
        gateway.ask(ask).await.assert_ran("hello");
    }
}

#[tokio::test]
async fn a_recorded_failure_is_replayed_and_a_server_error_runs_again() {
    let upstream = Upstream::start(|seen| match &*seen.target {
        "/sold-out" => Reply::with(402, "Content-Type: text/plain\r\n", "sold out"),
        _ => Reply::status(503, "later"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    for replayed in [false, true] {
        let answer = gateway.ask(Ask::post("/sold-out").key("k")).await;
        assert_eq!((answer.status, &*answer.text()), (402, "sold out"));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
        assert_eq!(answer.is_replay(), replayed);
    }
    for _ in 0..2 {
        let answer = gateway.ask(Ask::post("/later").key("k")).await;
        assert_eq!((answer.status, answer.is_replay()), (503, false));
    }
    assert_eq!(upstream.count(), 3);
}

/// Twins in flight: one runs, the other waits for it.
#[tokio::test]
async fn a_twin_waits_and_gets_the_same_answer() {
    let upstream = Upstream::gated().await;
    let gateway = Setup::to(&upstream).start().await;
    let mut first = gateway.send(Ask::charge("k")).await;
    until("the first runs", async || upstream.count() == 1).await;
    let mut twin = gateway.send(Ask::charge("k")).await;
    upstream.open_gate();
    first.hear().await.unwrap().assert_ran("run 1");
    twin.hear().await.unwrap().assert_replay("run 1");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_twin_that_may_not_wait_is_told_to_come_back() {
    let upstream = Upstream::gated().await;
    let gateway = Setup::to(&upstream).flag("--wait", "0s").start().await;
    let mut first = gateway.send(Ask::charge("k")).await;
    until("the first runs", async || upstream.count() == 1).await;
    let twin = gateway.ask(Ask::charge("k")).await;
    twin.assert_problem(409, "in-progress");
    assert!(twin.header("retry-after").is_some());
    upstream.open_gate();
    first.hear().await.unwrap().assert_ran("run 1");
}
