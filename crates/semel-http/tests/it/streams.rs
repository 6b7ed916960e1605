//! Answers that are relayed piece by piece.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::post,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_http::RoutePolicy;

use crate::harness::{
    RunCounter, answer, builder, infallible, keyed_post, problem, text, wait_until, without_backoff,
};

const EVENTS: [(&str, &str); 1] = [("content-type", "text/event-stream")];
const EVENT: Bytes = Bytes::from_static(b"data: 1\n\n");

/// Without the layer, such a stream ends when its client disconnects. With it, the operation runs until `max_run`.
#[tokio::test]
async fn a_silent_stream_without_a_client_loses_its_key_after_max_run() {
    let runs = RunCounter::default();
    let handler = move || async move {
        if runs.count() > 1 {
            return "again".into_response();
        }
        let events = stream::iter([infallible(EVENT)]).chain(stream::pending());
        (EVENTS, Body::from_stream(events)).into_response()
    };
    let lease = Duration::from_millis(100);
    let policy =
        without_backoff().wait(Duration::ZERO).with(|it| it.lease(lease).max_run(lease * 2));
    let layer = builder().policy(policy).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    drop(answer(&service, keyed_post("/", "a", "x")).await);
    wait_until("the key is free", async || {
        answer(&service, keyed_post("/", "a", "x")).await.status() == StatusCode::OK
    })
    .await;
    assert_eq!(text(answer(&service, keyed_post("/", "a", "x")).await).await, "again");
}

/// A stream that is always ready and a client that is gone never make the relay wait.
#[tokio::test]
async fn a_stream_without_a_client_does_not_block_its_thread() {
    const MANY: usize = 2_000_000;
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let handler = move || async move {
        let events = stream::repeat_with(move || {
            counted.fetch_add(1, SeqCst);
            infallible(EVENT)
        });
        (EVENTS, Body::from_stream(events.take(MANY)))
    };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    drop(answer(&service, keyed_post("/", "a", "x")).await);
    wait_until("the relay reads on", async || read.load(SeqCst) > 1000).await;
    // This is the only thread. A relay that blocked it would have read the whole stream.
    assert!(read.load(SeqCst) < MANY);
}

/// In gRPC, the trailers hold the status.
#[tokio::test]
async fn the_trailers_of_a_stream_are_recorded() {
    let handler = || async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "5".parse().unwrap());
        let frames = [infallible(Frame::data(EVENT)), infallible(Frame::trailers(trailers))];
        let body = Body::new(StreamBody::new(stream::iter(frames)));
        ([("content-type", "application/grpc")], body)
    };
    let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
    let first =
        answer(&service, keyed_post("/", "a", "x")).await.into_body().collect().await.unwrap();
    let replay = answer(&service, keyed_post("/", "a", "x")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    let replay = replay.into_body().collect().await.unwrap();
    for collected in [first, replay] {
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "5");
    }
}

/// No piece of a stream is kept.
#[tokio::test]
async fn an_open_stream_takes_nothing_of_the_budget() {
    let open = || async {
        let events = stream::iter([infallible(EVENT)]).chain(stream::pending());
        (EVENTS, Body::from_stream(events))
    };
    let policy = RoutePolicy::api().max_request_bytes(1000).max_response_bytes(1000);
    let layer = builder().policy(policy).buffer_bytes(3 * 4096).build().unwrap();
    let service =
        Router::new().route("/open", post(open)).route("/", post(|| async {})).layer(layer);
    let mut streams = Vec::new();
    for key in ["1", "2", "3"] {
        streams.push(answer(&service, keyed_post("/open", key, "")).await);
    }
    let response = answer(&service, keyed_post("/", "a", "")).await;
    assert_eq!(response.status(), StatusCode::OK, "{:?}", problem(&response));
}

/// A stream is recorded without its body.
#[tokio::test]
async fn an_answer_is_a_stream_by_its_media_type() {
    for (media_type, is_stream) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("Application/gRPC; v=1", true),
        ("text/event-stream; charset=utf-8", true),
        ("application/x-ndjson", true),
        ("application/json", false),
        ("application/graphql", false),
        ("text/plain", false),
    ] {
        let handler = move || async move { ([("content-type", media_type)], "said") };
        let service = Router::new().route("/", post(handler)).layer(builder().build().unwrap());
        assert_eq!(text(answer(&service, keyed_post("/", "a", "x")).await).await, "said");
        let replay = answer(&service, keyed_post("/", "a", "x")).await;
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert_eq!(replay.headers().contains_key("idempotency-body"), is_stream, "{media_type}");
        assert_eq!(text(replay).await, if is_stream { "" } else { "said" });
    }
}
