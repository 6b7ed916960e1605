//! How long idle connections are kept.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::harness::{PATIENCE, ScriptedReply, Setup, TestRequest, TestUpstream, until};

/// The other limits are longer than the tests wait: only the limit for idle connections can end one.
const SHORT_IDLE: &str = "[client]\nidle = \"300ms\"\nheader = \"60s\"\nbody = \"60s\"\n";

/// The time between two requests begins when the first is answered, however long that took.
async fn is_cut_off_when_idle(request: TestRequest) {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).config(SHORT_IDLE).start().await;
    let mut connection = gateway.send(request).await;
    sleep(Duration::from_millis(900)).await;
    upstream.open_gate();
    connection.read_response().await.unwrap().assert_ran("run 1");
    connection.assert_closed("idle").await;
}

#[tokio::test]
async fn a_connection_idle_after_a_slow_response_is_cut_off() {
    is_cut_off_when_idle(TestRequest::get("/orders")).await;
}

#[tokio::test]
async fn a_connection_idle_after_a_slow_upload_is_cut_off() {
    is_cut_off_when_idle(TestRequest::post("/orders").body("5 EUR")).await;
}

#[tokio::test]
async fn a_connection_idle_after_a_slow_operation_is_cut_off() {
    is_cut_off_when_idle(TestRequest::charge("k")).await;
}

/// After a quick response nothing else wakes the connection.
#[tokio::test]
async fn a_connection_idle_after_a_request_without_a_body_is_cut_off() {
    let upstream = TestUpstream::counting().await;
    let gateway = Setup::to(&upstream).config(SHORT_IDLE).start().await;
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = gateway.send(TestRequest::post("/orders/7").key("k")).await;
        assert_eq!(connection.read_response().await.unwrap().text(), "run 1");
        connections.push(connection);
    }
    for connection in &mut connections {
        connection.assert_closed("idle").await;
    }
}

#[tokio::test]
async fn a_connection_idle_after_it_waited_for_a_duplicate_is_cut_off() {
    let upstream = TestUpstream::gated().await;
    let gateway = Setup::to(&upstream).config(SHORT_IDLE).start().await;
    let _first = gateway.send(TestRequest::charge("k")).await;
    until("the first runs", async || upstream.count() == 1).await;
    let mut duplicate = gateway.send(TestRequest::charge("k")).await;
    sleep(Duration::from_millis(900)).await;
    upstream.open_gate();
    duplicate.read_response().await.unwrap().assert_replay("run 1");
    duplicate.assert_closed("idle").await;
}

/// Empty lines are allowed before a request, but do not count as one.
#[tokio::test]
async fn empty_lines_do_not_keep_a_connection() {
    let upstream = TestUpstream::counting().await;
    let config = "[client]\nidle = \"300ms\"\nheader = \"300ms\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let dripping = async {
        for _ in 0..150 {
            if stream.write_all(b"\r\n").await.is_err() {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    };
    assert!(dripping.await, "a connection for two bytes now and then");
}

/// Reads its response of `length` bytes after a pause, and returns how many arrived.
async fn read_after_pause(gateway: SocketAddr, length: usize) -> usize {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut stream = socket.connect(gateway).await.unwrap();
    let request = TestRequest::get(&format!("/{length}")).header("Connection", "close");
    stream.write_all(&request.bytes()).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let mut received = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("an end");
    let head = received.windows(4).position(|it| it == b"\r\n\r\n").map_or(0, |at| at + 4);
    received.len() - head
}

/// With one of these lengths, all but the end of the response fits into the buffers between gateway and client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_pauses_while_it_is_answered_is_not_idle() {
    let upstream = TestUpstream::start(|received| {
        ScriptedReply::ok(vec![b'x'; received.target.trim_start_matches('/').parse().unwrap()])
    })
    .await;
    let config = "[client]\nidle = \"500ms\"\nbody = \"20s\"\n";
    let gateway = Setup::to(&upstream).config(config).start().await;
    let lengths = (1..120).map(|it| it * (32 << 10));
    let clients: Vec<_> = lengths
        .map(|length| (length, tokio::spawn(read_after_pause(gateway.address, length))))
        .collect();
    for (length, client) in clients {
        assert_eq!(client.await.unwrap(), length);
    }
}
