//! HTTP/1.1 over sockets: a connection that is kept open serves the next request, and the rest of a refused body is
//! never taken for a request.

use std::{collections::HashMap, time::Duration};

use axum::{Router, routing::post};
use bytes::Bytes;
use semel_conformance::http::{TestServer, serve};
use semel_http::RoutePolicy;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::harness::{RunCounter, builder};

/// A connection that a test writes to and reads from directly.
struct RawConnection(BufReader<TcpStream>);

/// An answer, parsed.
#[derive(Debug)]
struct RawResponse {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl RawConnection {
    async fn to(server: &TestServer) -> Self {
        Self(BufReader::new(TcpStream::connect(server.address()).await.unwrap()))
    }

    /// Ignores errors: a server that has closed does not read on, and its answer says why.
    async fn send(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
    }

    /// The next answer, or `None` if the connection is closed.
    async fn receive(&mut self) -> Option<RawResponse> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HashMap::new();
        while let Some((name, value)) = self.line().await?.split_once(": ") {
            headers.insert(name.to_owned(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        self.0.read_exact(&mut body).await.ok()?;
        Some(RawResponse { status, headers, body: String::from_utf8(body).unwrap() })
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).await.unwrap_or(0);
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

impl RawResponse {
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

/// A body that looks like requests, whose handler counts them.
fn smuggled() -> String {
    "POST /smuggled HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".repeat(20)
}

/// A server, the counter of its orders, and the counter of smuggled requests.
async fn orders(policy: RoutePolicy) -> (TestServer, RunCounter, RunCounter) {
    let (runs, smuggled) = (RunCounter::default(), RunCounter::default());
    let (run, smuggle) = (runs.clone(), smuggled.clone());
    let service = Router::new()
        .route("/orders/{id}", post(move |_: Bytes| async move { format!("run {}", run.count()) }))
        .route("/smuggled", post(move || async move { format!("smuggled {}", smuggle.count()) }))
        .layer(builder().policy(policy).build().unwrap());
    (serve(service).await, runs, smuggled)
}

#[tokio::test]
async fn a_connection_is_kept_after_a_replay_and_a_mismatch() {
    let (server, runs, _) = orders(RoutePolicy::api()).await;
    let mut connection = RawConnection::to(&server).await;
    for (key, body, status, expected) in [
        ("a", "5 EUR", 200, "run 1"),
        ("a", "5 EUR", 200, "run 1"),
        ("a", "6 EUR", 409, "fingerprint-mismatch"),
        ("b", "6 EUR", 200, "run 2"),
    ] {
        connection.send(&request(key, body)).await;
        let response = connection.receive().await.unwrap();
        assert_eq!(response.status, status);
        assert!(response.body.contains(expected), "{expected}: {response:?}");
        assert!(!response.headers.contains_key("connection"), "{response:?}");
    }
    assert_eq!(runs.total(), 2);
}

/// All requests are sent before the first answer is read.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (server, runs, smuggled_runs) = orders(RoutePolicy::api()).await;
    let mut connection = RawConnection::to(&server).await;
    let (first, other) = (request("a", &smuggled()), request("a", "6 EUR"));
    connection.send(&format!("{first}{first}{other}{}", request("b", "7 EUR"))).await;
    for (status, expected) in
        [(200, "run 1"), (200, "run 1"), (409, "already used"), (200, "run 2")]
    {
        let response = connection.receive().await.unwrap();
        assert_eq!(response.status, status);
        assert!(response.body.contains(expected), "{expected}: {response:?}");
    }
    assert_eq!((runs.total(), smuggled_runs.total()), (2, 0));
}

/// Sends a request that is refused, with a body that looks like requests.
async fn a_refused_body_is_no_request(policy: RoutePolicy, refused: &str, status: u16, name: &str) {
    let (server, runs, smuggled_runs) = orders(policy).await;
    let mut connection = RawConnection::to(&server).await;
    connection.send(refused).await;
    let response = connection.receive().await.unwrap();
    assert_eq!((response.status, response.problem()), (status, Some(name)));
    connection.send(&request("next", "5 EUR")).await;
    match connection.receive().await {
        Some(next) => {
            assert!(
                !response.headers.contains_key("connection"),
                "the server announced that it closes"
            );
            assert_eq!((next.status, &*next.body), (200, "run 1"));
        }
        None => {
            assert_eq!(response.headers["connection"], "close");
            assert_eq!(runs.total(), 0);
        }
    }
    assert!(connection.0.buffer().is_empty());
    assert_eq!(smuggled_runs.total(), 0, "{name}: its body was taken for requests");
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
    let (server, runs, smuggled_runs) = orders(policy).await;
    let mut connection = RawConnection::to(&server).await;
    let rest = smuggled();
    connection.send(&head("a", 5 + rest.len())).await;
    connection.send("5 EUR").await;
    let response = connection.receive().await.unwrap();
    assert_eq!((response.status, response.problem()), (408, Some("body-timeout")));
    connection.send(&rest).await;
    assert!(connection.receive().await.is_none());
    assert_eq!((runs.total(), smuggled_runs.total()), (0, 0));
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_of_its_body_has_run_nothing() {
    let (server, runs, _) = orders(RoutePolicy::api()).await;
    let mut connection = RawConnection::to(&server).await;
    connection.send(&head("a", 100)).await;
    connection.send("5 EUR").await;
    connection.0.shutdown().await.unwrap();
    // The server may answer before it closes, since the client still reads.
    if let Some(response) = connection.receive().await {
        assert_eq!((response.status, response.problem()), (400, Some("body-unreadable")));
        assert!(connection.receive().await.is_none());
    }
    assert_eq!(runs.total(), 0);
    let mut connection = RawConnection::to(&server).await;
    connection.send(&request("a", "5 EUR, and so on")).await;
    assert_eq!(connection.receive().await.unwrap().body, "run 1");
}

#[tokio::test]
async fn a_body_with_invalid_framing_is_unreadable() {
    let (server, runs, _) = orders(RoutePolicy::api()).await;
    let mut connection = RawConnection::to(&server).await;
    let chunked = head("a", 0).replace("content-length: 0", "transfer-encoding: chunked");
    connection.send(&format!("{chunked}5\r\n5 EUR\r\nnot a length\r\n")).await;
    let response = connection.receive().await.unwrap();
    assert_eq!((response.status, response.problem()), (400, Some("body-unreadable")));
    assert!(connection.receive().await.is_none());
    assert_eq!(runs.total(), 0);
}
