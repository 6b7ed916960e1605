//! Requests behind one another on one connection.

use super::{HIDDEN, Stage};
use crate::harness::Ask;

#[tokio::test]
async fn honest_requests_behind_one_another_are_served_in_turn() {
    let stage = Stage::set().await;
    let mut wire = stage.gateway.wire().await;
    let asks = [Ask::post("/a").body("first"), Ask::get("/b"), Ask::charge("c"), Ask::get("/d")];
    wire.say(asks.iter().flat_map(Ask::bytes).collect::<Vec<_>>()).await;
    for number in 1..=4 {
        wire.hear().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let targets: Vec<_> = stage.upstream.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/a", "/b", "/orders/7", "/d"]);
}

#[tokio::test]
async fn a_chunked_body_is_followed_by_the_next_request() {
    let stage = Stage::set().await;
    let mut wire = stage.gateway.wire().await;
    let chunks = format!("{:x}\r\n{HIDDEN}\r\n0\r\nX-A: 1\r\n\r\n", HIDDEN.len());
    let chunked = [Ask::post("/a").chunked().bytes(), chunks.into_bytes()].concat();
    wire.say([chunked, Ask::get("/b").bytes()].concat()).await;
    for number in 1..=2 {
        wire.hear().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let targets: Vec<_> = stage.upstream.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/a", "/b"]);
}

#[tokio::test]
async fn an_honest_request_is_served_before_a_bad_one_is_refused() {
    let stage = Stage::set().await;
    let mut wire = stage.gateway.wire().await;
    let bad = super::plain("Content-Length: 5\r\nContent-Length: 6\r\n") + "hello!" + HIDDEN;
    wire.say([Ask::get("/good").bytes(), bad.into_bytes()].concat()).await;
    wire.hear().await.unwrap().assert_ran("run 1");
    assert_eq!(wire.hear().await.unwrap().status, 400);
    wire.assert_closed("after a bad request").await;
    assert_eq!(stage.targets().await, ["/good"]);
}

/// Many, with bodies, in pieces that respect no border.
#[tokio::test]
async fn where_pieces_are_cut_makes_no_difference() {
    let stage = Stage::set().await;
    let mut wire = stage.gateway.wire().await;
    let ask = |number| Ask::post(&format!("/{number}")).body(HIDDEN.repeat(number));
    let bytes: Vec<_> = (0..20).flat_map(|number| ask(number).bytes()).collect();
    for piece in bytes.chunks(97) {
        wire.say(piece).await;
    }
    for number in 1..=20 {
        wire.hear().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let seen = stage.upstream.seen();
    for (number, seen) in seen.iter().enumerate() {
        assert_eq!(seen.target, format!("/{number}"));
        assert_eq!(seen.body.len(), HIDDEN.len() * number);
    }
}
