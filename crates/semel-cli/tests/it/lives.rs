//! A gateway ends, one way or another, and the next one takes over.

use std::time::Duration;

use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::harness::{Ask, Gateway, PATIENCE, Reply, Setup, Upstream, run, until};

/// An orderly end with nothing to wait for.
const BOUND: Duration = Duration::from_secs(10);

async fn assert_refuses(gateway: &Gateway) {
    until("new connections are refused", async || {
        TcpStream::connect(gateway.address).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn outcomes_outlive_a_kill_byte_for_byte() {
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let sent = body.clone();
    let upstream = Upstream::start(move |seen| {
        let headers = "Content-Type: application/octet-stream\r\nETag: \"a\"\r\nLink: </a>\r\n\
                       Link: </b>\r\nLocation: /orders/7\r\n";
        let body = if seen.number == 1 { &sent[..] } else { b"again" };
        Reply::with(201, headers, body)
    });
    let upstream = upstream.await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    let first = gateway.ask(Ask::charge("k")).await;
    assert_eq!((first.status, &first.body), (201, &body));
    gateway.sigkill().await;
    let replay = setup.start().await.ask(Ask::charge("k")).await;
    assert!(replay.is_replay());
    assert_eq!((replay.status, &replay.body), (201, &body));
    for name in ["content-type", "etag", "location", "link"] {
        let all = |answer: &crate::harness::Answer| -> Vec<String> {
            let found = answer.headers.iter().filter(|(it, _)| it == name);
            found.map(|(_, value)| value.clone()).collect()
        };
        assert_eq!(all(&replay), all(&first), "{name}");
    }
    assert_eq!(upstream.count(), 1);
}

/// Whatever was answered when the power went is there afterwards.
#[tokio::test]
async fn every_answered_request_outlives_a_kill() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    let mut answers = Vec::new();
    for number in 0..30 {
        answers.push(gateway.ask(Ask::charge(&number.to_string())).await.text());
    }
    gateway.sigkill().await;
    let gateway = setup.start().await;
    for (number, text) in answers.iter().enumerate() {
        gateway.ask(Ask::charge(&number.to_string())).await.assert_replay(text);
    }
    assert_eq!(upstream.count(), 30);
}

#[tokio::test]
async fn an_orderly_end_loses_no_request_in_flight() {
    const IN_FLIGHT: usize = 50;
    let upstream = Upstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let mut gateway = setup.start().await;
    let mut wires = Vec::new();
    for number in 0..IN_FLIGHT {
        wires.push(gateway.send(Ask::charge(&number.to_string())).await);
    }
    until("all are in flight", async || upstream.count() == IN_FLIGHT).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    let mut texts = Vec::new();
    for wire in &mut wires {
        let answer = wire.hear().await.expect("an answer");
        assert_eq!((answer.status, answer.whole), (200, true));
        texts.push(answer.text());
    }
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    let gateway = setup.start().await;
    for (number, text) in texts.iter().enumerate() {
        gateway.ask(Ask::charge(&number.to_string())).await.assert_replay(text);
    }
    assert_eq!(upstream.count(), IN_FLIGHT);
}

/// Without a key, too: up, down, and both streams in the middle.
#[tokio::test]
async fn an_orderly_end_finishes_what_is_passed_through() {
    let upstream = Upstream::start(|seen| match &*seen.target {
        "/down" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst";
            Reply::nothing().write(head).gate().write(", last")
        }
        _ => Reply::ok(&seen.body),
    });
    let upstream = upstream.await;
    let mut gateway = Setup::to(&upstream).start().await;
    let mut down = gateway.send(Ask::get("/down")).await;
    assert_eq!(down.hear_head().await.unwrap().status, 200);
    let mut up = gateway.wire().await;
    up.say(Ask::post("/up").body("first, last").head()).await;
    up.say("first").await;
    until("both are on their way", async || upstream.count() == 2).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    up.say(", last").await;
    down.hear_bytes(b"first, last").await;
    up.hear().await.expect("an answer").assert_ran("first, last");
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_an_end() {
    let upstream = Upstream::counting().await;
    let config = "[client]\nheader = \"1s\"\n";
    let mut gateway = Setup::to(&upstream).config(config).start().await;
    let mut kept = gateway.send(Ask::get("/orders")).await;
    kept.hear().await.unwrap().assert_ran("run 1");
    let mut silent = gateway.wire().await;
    let mut half = gateway.wire().await;
    half.say("GET /orders HTTP/1.1\r\nHos").await;
    gateway.sigterm();
    // A head may still come within its own time.
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    kept.assert_closed("kept").await;
    silent.assert_closed("silent").await;
}

#[tokio::test]
async fn an_interrupt_ends_it_in_order() {
    let upstream = Upstream::counting().await;
    let mut gateway = Setup::to(&upstream).start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.sigint();
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
}

#[tokio::test]
async fn the_operation_of_a_client_that_hung_up_is_finished_before_the_end() {
    let upstream = Upstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let mut gateway = setup.start().await;
    let wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    drop(wire);
    gateway.sigterm();
    assert_refuses(&gateway).await;
    upstream.open_gate();
    assert_eq!(gateway.wait_exit(BOUND).await, Some(0));
    setup.start().await.ask(Ask::charge("k")).await.assert_replay("run 1");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_key_of_an_owner_that_was_killed_is_free_after_its_lease() {
    let upstream = Upstream::start(|seen| match seen.number {
        1 => Reply::nothing().stall(),
        number => Reply::ok(format!("run {number}")),
    });
    let upstream = upstream.await;
    let setup = Setup::to(&upstream).embedded().flag("--lease", "1s").flag("--wait", "100ms");
    let gateway = setup.start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let gateway = setup.start().await;
    let restarted_at = Instant::now();
    loop {
        let answer = gateway.ask(Ask::charge("k")).await;
        if answer.status == 200 {
            answer.assert_ran("run 2");
            break;
        }
        answer.assert_problem(409, "in-progress");
        assert!(restarted_at.elapsed() < Duration::from_secs(5), "still not free");
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].attempt(), Some("2"));
    assert!(seen[0].key().is_some() && seen[0].key() == seen[1].key(), "{seen:?}");
}

#[tokio::test]
async fn a_held_key_of_an_owner_that_was_killed_stays_unknown() {
    let upstream = Upstream::gated().await;
    let setup = Setup::to(&upstream).embedded();
    let setup = setup.flag("--lease", "300ms").flag("--wait", "2s").flag("--on-lost-owner", "hold");
    let gateway = setup.start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigkill().await;
    let gateway = setup.start().await;
    until("its lease is over", async || {
        let answer = gateway.ask(Ask::charge("k")).await;
        assert_eq!(answer.status, 409, "{answer:?}");
        answer.problem() == Some("outcome-unknown")
    })
    .await;
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let upstream = Upstream::gated().await;
    let mut gateway = Setup::to(&upstream).start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    assert_refuses(&gateway).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(Duration::from_secs(5)).await, Some(1));
}

#[tokio::test]
async fn an_end_is_not_waited_for_beyond_the_grace() {
    let upstream = Upstream::start(|_| Reply::nothing().stall()).await;
    let mut gateway = Setup::to(&upstream).config("shutdown_grace = \"300ms\"\n").start().await;
    let _keyed = gateway.send(Ask::charge("k")).await;
    let _plain = gateway.send(Ask::get("/orders")).await;
    until("both run", async || upstream.count() == 2).await;
    gateway.sigterm();
    assert!(gateway.wait_exit(BOUND).await.is_some());
}

/// What kills the process when it is late counts from the signal on.
#[tokio::test]
async fn the_grace_of_a_shutdown_is_spent_once() {
    let upstream = Upstream::gated().await;
    let mut gateway = Setup::to(&upstream).config("shutdown_grace = '2s'\n").start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(Duration::from_secs(3)).await, Some(1));
}

#[tokio::test]
async fn the_last_line_of_a_second_signal_is_there() {
    let upstream = Upstream::gated().await;
    for _ in 0..5 {
        let seen = upstream.count();
        let mut gateway = Setup::to(&upstream).start().await;
        let _wire = gateway.send(Ask::charge("k")).await;
        until("it runs", async || upstream.count() > seen).await;
        gateway.sigterm();
        until("it drains", async || gateway.stderr().contains("shutting down")).await;
        gateway.sigterm();
        assert_eq!(gateway.wait_exit(PATIENCE).await, Some(1));
        until("it says so", async || gateway.stderr().contains("ended at once")).await;
    }
}

/// A folder that has records began with some secret, though nobody can say any more with which.
#[tokio::test]
async fn a_folder_with_records_does_not_take_any_secret() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let gateway = setup.start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.sigkill().await;
    let args = ["gateway", "--listen", "127.0.0.1:0", "--store", "file:data"];
    let args = [&args[..], &["--upstream", "http://127.0.0.1:1", "--principal", "anonymous"]];
    std::fs::write(setup.folder().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let args = [&args.concat()[..], &["--hash-secret-file", "secret"]].concat();
    let ended = timeout(Duration::from_secs(3), run(setup.folder(), &args)).await;
    let pinned = setup.folder().join("data/.hash-secret-check").exists();
    assert!(ended.is_ok() && !pinned, "it serves with another secret; pinned: {pinned}");
}
