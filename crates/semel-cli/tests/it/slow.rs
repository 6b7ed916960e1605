//! Clients that take their time: they are cut off, nothing of theirs runs, and nobody else waits for them.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::harness::{Ask, Gateway, PATIENCE, Reply, Setup, Upstream, Wire};

/// Less than this between two bytes, and yet too long in all.
const DRIP: Duration = Duration::from_millis(40);

/// Longer than any limit here, shorter than a default one.
const SOON: Duration = Duration::from_secs(8);

const LIMITS: &str = "
read_timeout = \"600ms\"
[client]
header = \"400ms\"
body = \"300ms\"
idle = \"400ms\"
";

async fn stage() -> (Upstream, Gateway) {
    let upstream = Upstream::counting().await;
    let gateway = Setup::to(&upstream).config(LIMITS).start().await;
    (upstream, gateway)
}

/// Cut off with 408 or without a word, and soon.
async fn assert_cut_off(mut wire: Wire, since: Instant) {
    if let Some(answer) = wire.hear().await {
        assert_eq!(answer.status, 408, "{answer:?}");
    }
    wire.assert_closed("cut off").await;
    assert!(since.elapsed() < SOON, "after {:?}", since.elapsed());
}

/// Says it byte by byte, until nobody can be listening any more.
async fn drip(wire: &mut Wire, bytes: &[u8]) {
    for byte in bytes {
        wire.say([*byte]).await;
        sleep(DRIP).await;
    }
}

async fn assert_nothing_ran(upstream: &Upstream, gateway: &Gateway) {
    gateway.ask(Ask::get("/after")).await.assert_ran("run 1");
    assert_eq!(upstream.only().target, "/after");
}

#[tokio::test]
async fn a_head_byte_by_byte_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let (mut wire, since) = (gateway.wire().await, Instant::now());
    drip(&mut wire, &Ask::charge("a").bytes()[..40]).await;
    assert_cut_off(wire, since).await;
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_head_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let head = Ask::charge("a").head();
    let since = Instant::now();
    let mut wires = Vec::new();
    for length in [1, 10, 30, head.len() - 1] {
        let mut wire = gateway.wire().await;
        wire.say(&head[..length]).await;
        wires.push(wire);
    }
    for wire in wires {
        assert_cut_off(wire, since).await;
    }
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let (_upstream, gateway) = stage().await;
    assert_cut_off(gateway.wire().await, Instant::now()).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_more_is_closed() {
    let (_upstream, gateway) = stage().await;
    let mut wire = gateway.send(Ask::get("/orders")).await;
    wire.hear().await.unwrap().assert_ran("run 1");
    assert_cut_off(wire, Instant::now()).await;
}

/// A head on a connection that is kept has no more time than the first.
#[tokio::test]
async fn the_second_head_is_cut_off_too() {
    let (upstream, gateway) = stage().await;
    let mut wire = gateway.send(Ask::get("/after")).await;
    wire.hear().await.unwrap().assert_ran("run 1");
    let since = Instant::now();
    drip(&mut wire, &Ask::charge("a").bytes()[..40]).await;
    assert_cut_off(wire, since).await;
    assert_eq!(upstream.only().target, "/after");
}

#[tokio::test]
async fn a_keyed_body_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let ask = Ask::charge("a").body("5 EUR, and so on");
    let since = Instant::now();
    let mut wires = [gateway.wire().await, gateway.wire().await];
    wires[0].say(ask.head()).await;
    wires[1].say([ask.head(), b"5 EUR".to_vec()].concat()).await;
    for wire in wires {
        assert_cut_off(wire, since).await;
    }
    assert_nothing_ran(&upstream, &gateway).await;
}

#[tokio::test]
async fn a_keyed_body_byte_by_byte_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let ask = Ask::charge("a").body("x".repeat(1000));
    let (mut wire, since) = (gateway.wire().await, Instant::now());
    wire.say(ask.head()).await;
    drip(&mut wire, &[b'x'; 30]).await;
    assert_cut_off(wire, since).await;
    assert_nothing_ran(&upstream, &gateway).await;
}

/// It has begun upstream, since nobody waited for its end; but it never ends there.
#[tokio::test]
async fn a_body_without_a_key_that_stops_is_cut_off() {
    let (upstream, gateway) = stage().await;
    let (mut wire, since) = (gateway.wire().await, Instant::now());
    wire.say(Ask::post("/orders/7").body("5 EUR, and so on").head()).await;
    wire.say("5 EUR").await;
    if let Some(answer) = wire.hear().await {
        assert!([408, 502, 504].contains(&answer.status), "{answer:?}");
    }
    wire.assert_closed("cut off").await;
    assert!(since.elapsed() < SOON);
    crate::harness::until("the upstream is let go", async || upstream.open() == 0).await;
    assert!(upstream.seen().iter().all(|seen| !seen.whole));
}

/// Slow, but never for too long at a time: an upload without a key may take as long as it likes.
#[tokio::test]
async fn a_long_upload_without_a_key_is_not_cut_off() {
    let (upstream, gateway) = stage().await;
    let mut wire = gateway.wire().await;
    wire.say(Ask::post("/orders/7").body("x".repeat(25)).head()).await;
    drip(&mut wire, &[b'x'; 25]).await;
    wire.hear().await.unwrap().assert_ran("run 1");
    assert_eq!(upstream.only().body.len(), 25);
}

/// The upstream is slower than a client may be.
#[tokio::test]
async fn a_client_that_waits_for_its_answer_is_not_cut_off() {
    let upstream = Upstream::gated().await;
    let gateway = Setup::to(&upstream).config(LIMITS).start().await;
    let mut keyed = gateway.send(Ask::charge("a")).await;
    let mut plain = gateway.send(Ask::get("/orders")).await;
    sleep(Duration::from_millis(1_000)).await;
    upstream.open_gate();
    for wire in [&mut keyed, &mut plain] {
        assert_eq!(wire.hear().await.expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn who_does_not_read_holds_up_nobody() {
    const LARGE: usize = 20 << 20;
    let upstream = Upstream::start(|seen| match &*seen.target {
        "/large" => Reply::ok(vec![b'x'; LARGE]),
        _ => Reply::ok("small"),
    });
    let upstream = upstream.await;
    let gateway = Setup::to(&upstream).start().await;
    let mut deaf = Vec::new();
    for number in 0..8 {
        let large = Ask::method(if number % 2 == 0 { "GET" } else { "POST" }, "/large");
        deaf.push(gateway.send(large.key(&number.to_string())).await);
    }
    crate::harness::until("all are asked", async || upstream.count() == 8).await;
    let since = Instant::now();
    for number in 0..50 {
        let key = format!("small-{number}");
        gateway.ask(Ask::charge(&key)).await.assert_ran("small");
        gateway.ask(Ask::get("/orders")).await.assert_ran("small");
    }
    assert!(since.elapsed() < PATIENCE);
    // Whoever reads at last gets all of it.
    let answer = deaf[0].hear().await.unwrap();
    assert_eq!((answer.status, answer.body.len(), answer.whole), (200, LARGE, true));
}
