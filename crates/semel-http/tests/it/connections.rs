//! HTTP/1.1 over sockets: a connection that is kept goes on with the next request, and what is left of a
//! refused one is never taken for a request.

use std::{collections::HashMap, time::Duration};

use axum::{Router, routing::post};
use bytes::Bytes;
use semel_conformance::http::{TestServer, serve};
use semel_http::RoutePolicy;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::scene::{Runs, builder};

/// A connection, written to and read from by hand.
struct Wire(BufReader<TcpStream>);

/// An answer as it came.
#[derive(Debug)]
struct Heard {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Wire {
    async fn to(served: &TestServer) -> Self {
        Self(BufReader::new(TcpStream::connect(served.address()).await.unwrap()))
    }

    /// A server that has closed does not listen; its answer says why.
    async fn say(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
    }

    /// The next answer; `None` where the connection is closed instead.
    async fn hear(&mut self) -> Option<Heard> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HashMap::new();
        while let Some((name, value)) = self.line().await?.split_once(": ") {
            headers.insert(name.to_owned(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        self.0.read_exact(&mut body).await.ok()?;
        Some(Heard { status, headers, body: String::from_utf8(body).unwrap() })
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).await.unwrap_or(0);
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

impl Heard {
    fn problem(&self) -> Option<&str> {
        self.headers.get("semel-status").map(String::as_str)
    }
}

fn head(key: &str, length: usize) -> String {
    format!(
        "POST /orders/7 HTTP/1.1\r\nhost: localhost\r\nidempotency-key: {key}\r\n\
         content-length: {length}\r\n\r\n"
    )
}

fn request(key: &str, body: &str) -> String {
    head(key, body.len()) + body
}

/// A body that would do something, were it taken for a request.
fn smuggled() -> String {
    "POST /smuggled HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".repeat(20)
}

/// Orders are counted by the first, requests that nobody made by the second.
async fn orders(policy: RoutePolicy) -> (TestServer, Runs, Runs) {
    let (runs, smuggled) = (Runs::default(), Runs::default());
    let (run, smuggle) = (runs.clone(), smuggled.clone());
    let service = Router::new()
        .route("/orders/{id}", post(move |_: Bytes| async move { format!("run {}", run.count()) }))
        .route("/smuggled", post(move || async move { format!("smuggled {}", smuggle.count()) }))
        .layer(builder().policy(policy).build().unwrap());
    (serve(service).await, runs, smuggled)
}

#[tokio::test]
async fn a_connection_is_kept_after_a_replay_and_a_mismatch() {
    let (served, runs, _) = orders(RoutePolicy::api()).await;
    let mut wire = Wire::to(&served).await;
    for (key, body, status, said) in [
        ("a", "5 EUR", 200, "run 1"),
        ("a", "5 EUR", 200, "run 1"),
        ("a", "6 EUR", 409, "fingerprint-mismatch"),
        ("b", "6 EUR", 200, "run 2"),
    ] {
        wire.say(&request(key, body)).await;
        let heard = wire.hear().await.unwrap();
        assert_eq!(heard.status, status);
        assert!(heard.body.contains(said), "{said}: {heard:?}");
        assert!(!heard.headers.contains_key("connection"), "{heard:?}");
    }
    assert_eq!(runs.so_far(), 2);
}

/// All of it is on the wire at once: what was asked, and what is asked next.
#[tokio::test]
async fn requests_behind_one_another_are_answered_in_turn() {
    let (served, runs, smuggled_runs) = orders(RoutePolicy::api()).await;
    let mut wire = Wire::to(&served).await;
    let (first, other) = (request("a", &smuggled()), request("a", "6 EUR"));
    wire.say(&format!("{first}{first}{other}{}", request("b", "7 EUR"))).await;
    for (status, said) in [(200, "run 1"), (200, "run 1"), (409, "already used"), (200, "run 2")] {
        let heard = wire.hear().await.unwrap();
        assert_eq!(heard.status, status);
        assert!(heard.body.contains(said), "{said}: {heard:?}");
    }
    assert_eq!((runs.so_far(), smuggled_runs.so_far()), (2, 0));
}

/// Refuses a request for something else than its body, which is all there and looks like requests.
async fn a_refused_body_is_no_request(policy: RoutePolicy, refused: &str, status: u16, name: &str) {
    let (served, runs, smuggled_runs) = orders(policy).await;
    let mut wire = Wire::to(&served).await;
    wire.say(refused).await;
    let heard = wire.hear().await.unwrap();
    assert_eq!((heard.status, heard.problem()), (status, Some(name)));
    wire.say(&request("next", "5 EUR")).await;
    match wire.hear().await {
        Some(next) => {
            assert!(!heard.headers.contains_key("connection"), "it was to be closed");
            assert_eq!((next.status, &*next.body), (200, "run 1"));
        }
        None => {
            assert_eq!(heard.headers["connection"], "close");
            assert_eq!(runs.so_far(), 0);
        }
    }
    assert!(wire.0.buffer().is_empty());
    assert_eq!(smuggled_runs.so_far(), 0, "{name}: its body was taken for requests");
}

#[tokio::test]
async fn the_body_of_a_request_with_a_bad_key_is_never_taken_for_a_request() {
    let refused = request("a, b", &smuggled());
    a_refused_body_is_no_request(RoutePolicy::api(), &refused, 400, "key-invalid").await;
}

#[tokio::test]
async fn the_body_of_a_request_without_a_key_is_never_taken_for_a_request() {
    let refused = request("a", &smuggled()).replace("idempotency-key: a\r\n", "");
    let policy = RoutePolicy::api().require_key();
    a_refused_body_is_no_request(policy, &refused, 400, "key-missing").await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_never_taken_for_a_request() {
    let policy = RoutePolicy::api().max_request_bytes(100);
    let refused = request("a", &smuggled());
    a_refused_body_is_no_request(policy, &refused, 413, "body-too-large").await;
}

#[tokio::test]
async fn the_rest_of_a_body_that_comes_too_late_is_never_taken_for_a_request() {
    let policy = RoutePolicy::api().read_timeout(Duration::from_millis(50));
    let (served, runs, smuggled_runs) = orders(policy).await;
    let mut wire = Wire::to(&served).await;
    let rest = smuggled();
    wire.say(&head("a", 5 + rest.len())).await;
    wire.say("5 EUR").await;
    let heard = wire.hear().await.unwrap();
    assert_eq!((heard.status, heard.problem()), (408, Some("body-timeout")));
    wire.say(&rest).await;
    assert!(wire.hear().await.is_none());
    assert_eq!((runs.so_far(), smuggled_runs.so_far()), (0, 0));
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_of_its_body_has_run_nothing() {
    let (served, runs, _) = orders(RoutePolicy::api()).await;
    let mut wire = Wire::to(&served).await;
    wire.say(&head("a", 100)).await;
    wire.say("5 EUR").await;
    wire.0.shutdown().await.unwrap();
    // The server may have a word to say to somebody who still listens, and closes then.
    if let Some(heard) = wire.hear().await {
        assert_eq!((heard.status, heard.problem()), (400, Some("body-unreadable")));
        assert!(wire.hear().await.is_none());
    }
    assert_eq!(runs.so_far(), 0);
    let mut wire = Wire::to(&served).await;
    wire.say(&request("a", "5 EUR, and so on")).await;
    assert_eq!(wire.hear().await.unwrap().body, "run 1");
}

#[tokio::test]
async fn a_body_that_is_framed_wrongly_is_unreadable() {
    let (served, runs, _) = orders(RoutePolicy::api()).await;
    let mut wire = Wire::to(&served).await;
    let chunked = head("a", 0).replace("content-length: 0", "transfer-encoding: chunked");
    wire.say(&format!("{chunked}5\r\n5 EUR\r\nnot a length\r\n")).await;
    let heard = wire.hear().await.unwrap();
    assert_eq!((heard.status, heard.problem()), (400, Some("body-unreadable")));
    assert!(wire.hear().await.is_none());
    assert_eq!(runs.so_far(), 0);
}
