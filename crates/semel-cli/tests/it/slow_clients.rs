//! Slow clients are cut off, their requests do not run, and other clients do not wait for them.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::harness::{
    ClientConnection, GatewayProcess, ScriptedReply, Setup, TestRequest, TestUpstream,
};

/// The pause between two bytes: within each limit, but too long in total.
const DRIP: Duration = Duration::from_millis(40);

/// Longer than any limit here, shorter than the default limits.
const SOON: Duration = Duration::from_secs(8);

const LIMITS: &str = "
read_timeout = \"600ms\"
[client]
header = \"400ms\"
body = \"300ms\"
idle = \"400ms\"
";

async fn stage() -> (TestUpstream, GatewayProcess) {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).config(LIMITS).start().await;
    (upstream, gateway)
}

/// Asserts that the connection is closed soon, with 408 or without a response.
async fn assert_cut_off(mut connection: ClientConnection, since: Instant) {
    if let Some(response) = connection.read_response().await {
        assert_eq!(response.status, 408, "{response:?}");
    }
    connection.assert_closed("cut off").await;
    assert!(since.elapsed() < SOON, "after {:?}", since.elapsed());
}

/// Writes byte by byte, also after the gateway may have closed the connection.
async fn drip(connection: &mut ClientConnection, bytes: &[u8]) {
    for byte in bytes {
        connection.write([*byte]).await;
        sleep(DRIP).await;
    }
}

async fn assert_nothing_ran(upstream: &TestUpstream, gateway: &GatewayProcess) {
    gateway.request(TestRequest::get("/after")).await.assert_ran("run 1");
    assert_eq!(upstream.only().target, "/after");
}

#[tokio::test]
async fn a_head_byte_by_byte_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let (mut connection, since) = (gateway.connection().await, Instant::now());
    drip(&mut connection, &TestRequest::charge("a").bytes()[..40]).await;
    assert_cut_off(connection, since).await;
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_head_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let head = TestRequest::charge("a").head();
    let since = Instant::now();
    let mut connections = Vec::new();
    for length in [1, 10, 30, head.len() - 1] {
        let mut connection = gateway.connection().await;
        connection.write(&head[..length]).await;
        connections.push(connection);
    }
    for connection in connections {
        assert_cut_off(connection, since).await;
    }
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let (_upstream, gateway) = stage().await;
    assert_cut_off(gateway.connection().await, Instant::now()).await;
}

#[tokio::test]
async fn a_connection_that_goes_silent_is_closed() {
    let (_upstream, gateway) = stage().await;
    let mut connection = gateway.send(TestRequest::get("/orders")).await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_cut_off(connection, Instant::now()).await;
}

/// The second head on a connection has the same limit as the first.
#[tokio::test]
async fn the_second_head_is_cut_off_too() {
    let (upstream, gateway) = stage().await;
    let mut connection = gateway.send(TestRequest::get("/after")).await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    let since = Instant::now();
    drip(&mut connection, &TestRequest::charge("a").bytes()[..40]).await;
    assert_cut_off(connection, since).await;
    assert_eq!(upstream.only().target, "/after");
}

#[tokio::test]
async fn a_keyed_body_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let request = TestRequest::charge("a").body("5 EUR, and so on");
    let since = Instant::now();
    let mut connections = [gateway.connection().await, gateway.connection().await];
    connections[0].write(request.head()).await;
    connections[1].write([request.head(), b"5 EUR".to_vec()].concat()).await;
    for connection in connections {
        assert_cut_off(connection, since).await;
    }
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_keyed_body_byte_by_byte_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let request = TestRequest::charge("a").body("x".repeat(1000));
    let (mut connection, since) = (gateway.connection().await, Instant::now());
    connection.write(request.head()).await;
    drip(&mut connection, &[b'x'; 30]).await;
    assert_cut_off(connection, since).await;
    assert_nothing_ran(&upstream, &gateway).await;
}

/// Without a key the request begins at the upstream before its end has arrived, but it never ends there.
#[tokio::test]
async fn a_body_without_a_key_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let (mut connection, since) = (gateway.connection().await, Instant::now());
    connection.write(TestRequest::post("/orders/7").body("5 EUR, and so on").head()).await;
    connection.write("5 EUR").await;
    if let Some(response) = connection.read_response().await {
        assert!([408, 502, 504].contains(&response.status), "{response:?}");
    }
    connection.assert_closed("cut off").await;
    assert!(since.elapsed() < SOON);
    crate::harness::until("the upstream is let go", async || upstream.open() == 0).await;
    assert!(upstream.received().iter().all(|received| !received.whole));
}

/// An upload without a key may take any time, as long as no pause is too long.
#[tokio::test]
async fn a_long_upload_without_a_key_is_not_cut_off() {
    let (upstream, gateway) = stage().await;
    let mut connection = gateway.connection().await;
    connection.write(TestRequest::post("/orders/7").body("x".repeat(25)).head()).await;
    drip(&mut connection, &[b'x'; 25]).await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_eq!(upstream.only().body.len(), 25);
}

/// The upstream takes longer than the limits for clients.
#[tokio::test]
async fn a_client_that_waits_for_its_response_is_not_cut_off() {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).config(LIMITS).start().await;
    let mut keyed = gateway.send(TestRequest::charge("a")).await;
    let mut plain = gateway.send(TestRequest::get("/orders")).await;
    sleep(Duration::from_millis(1_000)).await;
    upstream.open_gate();
    for connection in [&mut keyed, &mut plain] {
        assert_eq!(connection.read_response().await.expect("a response").status, 200);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    const LARGE: usize = 20 << 20;
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/large" => ScriptedReply::ok(vec![b'x'; LARGE]),
        _ => ScriptedReply::ok("small"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut not_reading = Vec::new();
    for number in 0..8 {
        let large = TestRequest::method(if number % 2 == 0 { "GET" } else { "POST" }, "/large");
        not_reading.push(gateway.send(large.key(&number.to_string())).await);
    }
    crate::harness::until("all requests arrived", async || upstream.count() == 8).await;
    for number in 0..50 {
        let key = format!("small-{number}");
        gateway.request(TestRequest::charge(&key)).await.assert_ran("small");
        gateway.request(TestRequest::get("/orders")).await.assert_ran("small");
    }
    // A client that reads at last gets the whole response.
    let response = not_reading[0].read_response().await.unwrap();
    assert_eq!((response.status, response.body.len(), response.whole), (200, LARGE, true));
}
