//! Several requests one after another on one connection.

use super::{FramingStage, HIDDEN};
use crate::harness::TestRequest;

#[tokio::test]
async fn pipelined_requests_are_served_in_turn() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    let requests = [
        TestRequest::post("/a").body("first"),
        TestRequest::get("/b"),
        TestRequest::charge("c"),
        TestRequest::get("/d"),
    ];
    connection.write(requests.iter().flat_map(TestRequest::bytes).collect::<Vec<_>>()).await;
    for number in 1..=4 {
        connection.read_response().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let targets: Vec<_> =
        stage.upstream.received().into_iter().map(|received| received.target).collect();
    assert_eq!(targets, ["/a", "/b", "/orders/7", "/d"]);
}

#[tokio::test]
async fn a_chunked_body_is_followed_by_the_next_request() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    let chunks = format!("{:x}\r\n{HIDDEN}\r\n0\r\nX-A: 1\r\n\r\n", HIDDEN.len());
    let chunked = [TestRequest::post("/a").chunked().bytes(), chunks.into_bytes()].concat();
    connection.write([chunked, TestRequest::get("/b").bytes()].concat()).await;
    for number in 1..=2 {
        connection.read_response().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let targets: Vec<_> =
        stage.upstream.received().into_iter().map(|received| received.target).collect();
    assert_eq!(targets, ["/a", "/b"]);
}

#[tokio::test]
async fn a_valid_request_is_served_before_a_bad_one_is_refused() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    let bad = super::plain("Content-Length: 5\r\nContent-Length: 6\r\n") + "hello!" + HIDDEN;
    connection.write([TestRequest::get("/good").bytes(), bad.into_bytes()].concat()).await;
    connection.read_response().await.unwrap().assert_ran("run 1");
    assert_eq!(connection.read_response().await.unwrap().status, 400);
    connection.assert_closed("after a bad request").await;
    assert_eq!(stage.targets().await, ["/good"]);
}

/// Many requests with bodies, cut into pieces anywhere.
#[tokio::test]
async fn where_pieces_are_cut_makes_no_difference() {
    let stage = FramingStage::set().await;
    let mut connection = stage.gateway.connection().await;
    let request = |number| TestRequest::post(&format!("/{number}")).body(HIDDEN.repeat(number));
    let bytes: Vec<_> = (0..20).flat_map(|number| request(number).bytes()).collect();
    for piece in bytes.chunks(97) {
        connection.write(piece).await;
    }
    for number in 1..=20 {
        connection.read_response().await.unwrap().assert_ran(&format!("run {number}"));
    }
    let received = stage.upstream.received();
    for (number, received) in received.iter().enumerate() {
        assert_eq!(received.target, format!("/{number}"));
        assert_eq!(received.body.len(), HIDDEN.len() * number);
    }
}
