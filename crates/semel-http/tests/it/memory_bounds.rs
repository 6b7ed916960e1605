//! Bodies in memory stay within the budget, and the budget counts their real size.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use semel_http::{KeyFrom, RoutePolicy};
use tokio::task::yield_now;
use tower::ServiceExt;

use crate::harness::{
    HandlerGate, LivePieces, answer, builder, infallible, keyed_post, problem, sent, text,
};

const MIB: usize = 1 << 20;
/// The capacity that every answer has.
const SMALL: usize = 4096;

/// A client that is refused retries. But a body that is not recorded would be missing from every replay.
#[tokio::test]
async fn a_small_answer_is_refused_or_recorded_whole_when_the_budget_is_used_up() {
    let layer = builder()
        .policy(RoutePolicy::api().max_request_bytes(1000).max_response_bytes(1000))
        .buffer_bytes(6000)
        .build()
        .unwrap();
    let gate = HandlerGate::closed();
    let opened = gate.clone();
    let hang = post(|_: Request<Body>| async move { opened.wait_open().await });
    let service =
        Router::new().route("/hang", hang).route("/", post(|| async { "receipt 7" })).layer(layer);
    let hanging = sent(&service, keyed_post("/hang", "h", vec![b'x'; 1000]));
    let refused = answer(&service, keyed_post("/", "a", "")).await;
    assert_eq!(problem(&refused), Some("overloaded"));
    gate.open();
    hanging.await.unwrap();
    for _ in 0..2 {
        assert_eq!(text(answer(&service, keyed_post("/", "a", "")).await).await, "receipt 7");
    }
}

/// If the reserved bytes were given back for a moment, another request could take them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_reserved_for_a_small_answer_are_not_given_to_other_requests() {
    const LARGE: usize = 5000;
    let keyless = RoutePolicy::api().require_key().key_from(KeyFrom::closure(|_, _| None));
    let policy = keyless.max_request_bytes(LARGE).max_response_bytes(LARGE);
    let layer = builder().policy(policy).buffer_bytes(LARGE + SMALL).build().unwrap();
    let service = Router::new().route("/", post(|| async { "receipt 7" })).layer(layer);
    let large = stream::iter([infallible(Bytes::from(vec![b'x'; LARGE]))]).chain(stream::pending());
    let _stalled = sent(&service, keyed_post("/", "large", Body::from_stream(large)));
    // From here on the budget has capacity for one small answer, and other requests take it and give it back.
    let crowded = service.clone();
    let crowd = tokio::spawn(async move {
        loop {
            let request = Request::post("/").body(Body::from(vec![b'x'; SMALL])).unwrap();
            answer(&crowded, request).await;
            yield_now().await;
        }
    });
    for round in 0..3000 {
        let key = format!("k{round}");
        for _ in 0..2 {
            assert_eq!(answered(&service, &key).await, "receipt 7", "{key}");
        }
    }
    crowd.abort();
}

/// The answer once the budget has capacity for it.
async fn answered(service: &Router, key: &str) -> String {
    loop {
        let response = answer(service, keyed_post("/", key, "")).await;
        if response.status() == StatusCode::OK {
            return text(response).await;
        }
        assert_eq!(problem(&response), Some("overloaded"));
        yield_now().await;
    }
}

/// A slice keeps its whole buffer in memory, but the store counts the slice only.
#[tokio::test]
async fn a_record_does_not_keep_a_larger_buffer_than_it_is_charged_for() {
    let alive = LivePieces::default();
    let made = alive.clone();
    let handler = move || async move { made.piece(16 * MIB).slice(..100_000) };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    drop(answer(&service, keyed_post("/", "a", "x")).await);
    let held = alive.bytes();
    assert!(held < MIB.cast_signed(), "a record of 100000 bytes keeps {held} alive");
}

/// The bytes that were read before an answer turned out to be too large are held until the client reads them.
#[tokio::test]
async fn the_read_part_of_answers_over_the_limit_stays_within_the_budget() {
    const BUDGET: usize = MIB + 4096;
    let alive = LivePieces::default();
    let made = alive.clone();
    let handler = move || async move {
        let pieces = (0..17).map(move |_| infallible(made.piece(MIB / 16)));
        Body::from_stream(stream::iter(pieces))
    };
    let layer = builder().buffer_bytes(BUDGET).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    let mut unread = Vec::new();
    for key in 0..20 {
        unread.push(answer(&service, keyed_post("/", &format!("k{key}"), "")).await);
    }
    let held = alive.bytes();
    assert!(held <= 4 * BUDGET.cast_signed(), "{held} bytes held, {BUDGET} allowed");
}

/// A handler may take the bytes out of the body and keep them until it has answered.
#[tokio::test]
async fn request_bodies_that_handlers_hold_stay_within_the_budget() {
    let held = Arc::new(AtomicUsize::new(0));
    let counted = held.clone();
    let handler = move |body: Bytes| async move {
        counted.fetch_add(body.len(), SeqCst);
        pending::<()>().await;
        drop(body);
    };
    let layer = builder().buffer_bytes(2 * MIB).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    let request = |key: u32| keyed_post("/", &format!("k{key}"), vec![b'x'; MIB]);
    let mut running: Vec<_> =
        (0..8).map(|key| Box::pin(service.clone().oneshot(request(key)))).collect();
    let refused = running.iter_mut().filter_map(FutureExt::now_or_never).count();
    let held = held.load(SeqCst);
    assert!(refused > 0 && held > 0, "some run, some are refused");
    assert!(held <= 2 * MIB, "{held} bytes held, {} allowed", 2 * MIB);
}

/// A piece of one byte is counted as one byte, but needs more memory.
#[tokio::test]
async fn a_body_in_tiny_pieces_takes_no_more_memory_than_it_is_charged_for() {
    let most = most_alive(1).await;
    assert!(most < 20_000, "{most} pieces of one byte were held at the same time");
}

/// An HTTP/2 client can send empty frames until the read timeout.
#[tokio::test]
async fn empty_pieces_are_not_collected() {
    let most = most_alive(0).await;
    assert!(most < 100, "{most} pieces without a byte were held at the same time");
}

/// The most pieces that are in memory at the same time, for a body of 200 000 pieces of this length.
async fn most_alive(length: usize) -> isize {
    let (alive, most) = (LivePieces::default(), Arc::new(AtomicIsize::new(0)));
    let seen = most.clone();
    let pieces = (0..200_000).map(move |_| {
        let piece = alive.piece(length);
        seen.fetch_max(alive.pieces(), SeqCst);
        infallible(piece)
    });
    let service = Router::new().route("/", post(|| async {})).layer(builder().build().unwrap());
    let response =
        answer(&service, keyed_post("/", "a", Body::from_stream(stream::iter(pieces)))).await;
    assert_eq!(response.status(), StatusCode::OK);
    most.load(SeqCst)
}

/// With and without a declared length.
#[tokio::test]
async fn a_request_body_may_have_as_many_bytes_as_the_limit_and_no_more() {
    let layer = builder().policy(RoutePolicy::api().max_request_bytes(10)).build().unwrap();
    let handler = |body: Bytes| async move { body };
    let service = Router::new().route("/", post(handler)).layer(layer);
    let whole = |body: &'static str| Body::from(body);
    let in_pieces = |body: &'static str| {
        let pieces = [&body[..5], &body[5..]].map(|piece| infallible(Bytes::from(piece)));
        Body::from_stream(stream::iter(pieces))
    };
    for (key, body) in [("a", whole("0123456789")), ("b", in_pieces("0123456789"))] {
        assert_eq!(text(answer(&service, keyed_post("/", key, body)).await).await, "0123456789");
    }
    for (key, body) in [("c", whole("0123456789X")), ("d", in_pieces("0123456789X"))] {
        let response = answer(&service, keyed_post("/", key, body)).await;
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(problem(&response), Some("body-too-large"));
    }
}
