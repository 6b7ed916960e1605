//! A gateway shuts down or is killed, and the next one takes over.

use std::time::Duration;

use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::harness::{
    GatewayProcess, PATIENCE, ScriptedReply, Setup, TestRequest, TestUpstream, run, until,
};

/// The time for a shutdown with nothing to wait for: less than the default grace, and enough on a busy machine.
const BOUND: Duration = PATIENCE;

async fn assert_refuses(gateway: &GatewayProcess) {
    until("new connections are refused", async || {
        TcpStream::connect(gateway.address).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn outcomes_outlive_a_kill_byte_for_byte() {
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let sent = body.clone();
    let upstream = TestUpstream::start(move |received| {
        let headers = "Content-Type: application/octet-stream\r\nETag: \"a\"\r\nLink: </a>\r\n\
                       Link: </b>\r\nLocation: /orders/7\r\n";
        let body = if received.number == 1 { &sent[..] } else { b"again" };
        ScriptedReply::with(201, headers, body)
    });
    let upstream = upstream.await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    let first = gateway.request(TestRequest::charge("k")).await;
    assert_eq!((first.status, &first.body), (201, &body));
    gateway.sigkill().await;
    let replay = setup.start().await.request(TestRequest::charge("k")).await;
    assert!(replay.is_replay());
    assert_eq!((replay.status, &replay.body), (201, &body));
    for name in ["content-type", "etag", "location", "link"] {
        let all = |response: &crate::harness::ClientResponse| -> Vec<String> {
            let found = response.headers.iter().filter(|(it, _)| it == name);
            found.map(|(_, value)| value.clone()).collect()
        };
        assert_eq!(all(&replay), all(&first), "{name}");
    }
    assert_eq!(upstream.count(), 1);
}

/// Every response that was sent before a power failure is recorded.
#[tokio::test]
async fn every_answered_request_outlives_a_kill() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    let mut responses = Vec::new();
    for number in 0..30 {
        responses.push(gateway.request(TestRequest::charge(&number.to_string())).await.text());
    }
    gateway.sigkill().await;
    let gateway = setup.start().await;
    for (number, text) in responses.iter().enumerate() {
        gateway.request(TestRequest::charge(&number.to_string())).await.assert_replay(text);
    }
    assert_eq!(upstream.count(), 30);
}

#[tokio::test]
async fn a_shutdown_loses_no_request_in_flight() {
    const IN_FLIGHT: usize = 50;
    let upstream = TestUpstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let mut gateway = setup.start().await;
    let mut connections = Vec::new();
    for number in 0..IN_FLIGHT {
        connections.push(gateway.send(TestRequest::charge(&number.to_string())).await);
    }
    until("all are in flight", async || upstream.count() == IN_FLIGHT).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    let mut texts = Vec::new();
    for connection in &mut connections {
        let response = connection.read_response().await.expect("a response");
        assert_eq!((response.status, response.whole), (200, true));
        texts.push(response.text());
    }
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    let gateway = setup.start().await;
    for (number, text) in texts.iter().enumerate() {
        gateway.request(TestRequest::charge(&number.to_string())).await.assert_replay(text);
    }
    assert_eq!(upstream.count(), IN_FLIGHT);
}

/// An upload and a download without a key are finished.
#[tokio::test]
async fn a_shutdown_finishes_requests_without_a_key() {
    let upstream = TestUpstream::start(|received| match &*received.target {
        "/down" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst";
            ScriptedReply::nothing().write(head).gate().write(", last")
        }
        _ => ScriptedReply::ok(&received.body),
    });
    let upstream = upstream.await;
    let mut gateway = Setup::to(&upstream).start().await;
    let mut down = gateway.send(TestRequest::get("/down")).await;
    assert_eq!(down.read_head().await.unwrap().status, 200);
    let mut up = gateway.connection().await;
    up.write(TestRequest::post("/up").body("first, last").head()).await;
    up.write("first").await;
    until("both are on their way", async || upstream.count() == 2).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    up.write(", last").await;
    down.read_bytes(b"first, last").await;
    up.read_response().await.expect("a response").assert_ran("first, last");
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
}

#[tokio::test]
async fn idle_connections_do_not_delay_a_shutdown() {
    let upstream = TestUpstream::counting().await;
    let config = "[client]\nheader = \"1s\"\n";
    let mut gateway = Setup::to(&upstream).config(config).start().await;
    let mut kept = gateway.send(TestRequest::get("/orders")).await;
    kept.read_response().await.unwrap().assert_ran("run 1");
    let mut silent = gateway.connection().await;
    let mut half = gateway.connection().await;
    half.write("GET /orders HTTP/1.1\r\nHos").await;
    gateway.sigterm();
    // The rest of a head may still arrive within its time limit.
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    kept.assert_closed("kept").await;
    silent.assert_closed("silent").await;
}

#[tokio::test]
async fn sigint_shuts_down_in_order() {
    let upstream = TestUpstream::counting().await;
    let mut gateway = Setup::to(&upstream).start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.sigint();
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
}

#[tokio::test]
async fn the_operation_of_a_client_that_hung_up_is_finished_before_the_end() {
    let upstream = TestUpstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let mut gateway = setup.start().await;
    let connection = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    drop(connection);
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    setup.start().await.request(TestRequest::charge("k")).await.assert_replay("run 1");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_key_of_an_owner_that_was_killed_is_free_after_its_lease() {
    let upstream = TestUpstream::start(|received| match received.number {
        1 => ScriptedReply::nothing().stall(),
        number => ScriptedReply::ok(format!("run {number}")),
    });
    let upstream = upstream.await;
    let setup = Setup::to(&upstream).embedded().flag("--lease", "1s").flag("--wait", "100ms");
    let gateway = setup.start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let gateway = setup.start().await;
    let restarted_at = Instant::now();
    loop {
        let response = gateway.request(TestRequest::charge("k")).await;
        if response.status == 200 {
            response.assert_ran("run 2");
            break;
        }
        response.assert_problem(409, "in-progress");
        assert!(restarted_at.elapsed() < PATIENCE, "still not free");
    }
    let received = upstream.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].attempt(), Some("2"));
    assert!(received[0].key().is_some() && received[0].key() == received[1].key(), "{received:?}");
}

#[tokio::test]
async fn a_held_key_of_an_owner_that_was_killed_stays_unknown() {
    let upstream = TestUpstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let setup = setup.flag("--lease", "300ms").flag("--wait", "2s").flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let gateway = setup.start().await;
    until("its lease is over", async || {
        let response = gateway.request(TestRequest::charge("k")).await;
        assert_eq!(response.status, 409, "{response:?}");
        response.problem() == Some("outcome-unknown")
    })
    .await;
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let upstream = TestUpstream::gated().await;
    let mut gateway = Setup::to(&upstream).start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(BOUND).await, Some(1));
}

#[tokio::test]
async fn a_shutdown_waits_no_longer_than_the_grace() {
    let upstream = TestUpstream::start(|_| ScriptedReply::nothing().stall()).await;
    let mut gateway = Setup::to(&upstream).config("shutdown_grace = \"300ms\"\n").start().await;
    let _keyed = gateway.send(TestRequest::charge("k")).await;
    let _plain = gateway.send(TestRequest::get("/orders")).await;
    until("both run", async || upstream.count() == 2).await;
    gateway.sigterm();
    assert!(gateway.wait_exit(BOUND).await.is_some());
}

/// A supervisor that kills a late process counts from the signal on.
#[tokio::test]
async fn the_shutdown_grace_counts_once_from_the_signal() {
    let upstream = TestUpstream::gated().await;
    let mut gateway = Setup::to(&upstream).config("shutdown_grace = '6s'\n").start().await;
    let _wire = gateway.send(TestRequest::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    // Spent twice, it would be 12 s.
    assert_eq!(gateway.wait_exit(Duration::from_secs(11)).await, Some(1));
}

#[tokio::test]
async fn the_last_log_line_after_a_second_signal_is_written() {
    let upstream = TestUpstream::gated().await;
    for _ in 0..5 {
        let received = upstream.count();
        let mut gateway = Setup::to(&upstream).start().await;
        let _wire = gateway.send(TestRequest::charge("k")).await;
        until("it runs", async || upstream.count() > received).await;
        gateway.sigterm();
        until("it drains", async || gateway.stderr().contains("shutting down")).await;
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(PATIENCE).await, Some(1));
        until("it says so", async || gateway.stderr().contains("ended at once")).await;
    }
}

/// A folder with records began without a hash secret or with one that is not stored, so a secret is refused.
#[tokio::test]
async fn a_folder_with_records_refuses_another_hash_secret() {
    let upstream = TestUpstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.request(TestRequest::charge("k")).await.assert_ran("run 1");
    gateway.sigkill().await;
    let args = ["gateway", "--listen", "127.0.0.1:0", "--store", "file:data"];
    let args = [&args[..], &["--upstream", "http://127.0.0.1:1", "--principal", "anonymous"]];
    std::fs::write(setup.folder().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let args = [&args.concat()[..], &["--hash-secret-file", "secret"]].concat();
    let ended = timeout(Duration::from_secs(15), run(setup.folder(), &args)).await;
    let pinned = setup.folder().join("data/.hash-secret-check").exists();
    assert!(ended.is_ok() && !pinned, "it serves with another secret; pinned: {pinned}");
}
