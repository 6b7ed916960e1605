//! Headers that only the layer may set: it removes them from answers of the inner service.

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{AppendHeaders, IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_http::{Mode, RoutePolicy};

use crate::harness::{LayerBuilder, RunCounter, answer, builder, charge, infallible, text};

/// Headers that an inner service must not set.
const MARKS: [(&str, &str); 5] = [
    ("idempotency-body", "omitted"),
    ("idempotency-body-length", "7"),
    ("idempotent-replayed", "true"),
    ("idempotency-stored", "false"),
    ("semel-status", "no-such-name"),
];

fn marks(answer: &Response) -> Vec<&str> {
    MARKS
        .into_iter()
        .map(|(name, _)| name)
        .filter(|it| answer.headers().contains_key(*it))
        .collect()
}

/// A service with this answer, and all reserved headers on it.
fn marking(media_type: &'static str, body: &'static str, layer: LayerBuilder) -> Router {
    let handler = move || async move { (AppendHeaders(MARKS), [(CONTENT_TYPE, media_type)], body) };
    Router::new().route("/orders/{id}", post(handler)).layer(layer.build().unwrap())
}

#[tokio::test]
async fn an_inner_service_cannot_mark_its_answer_as_omitted_or_as_a_replay() {
    let service = marking("text/plain", "receipt 7", builder());
    let first = answer(&service, charge("a")).await;
    assert_eq!(marks(&first), [""; 0]);
    assert_eq!(text(first).await, "receipt 7");
    let replay = answer(&service, charge("a")).await;
    assert_eq!(marks(&replay), ["idempotent-replayed"]);
    assert_eq!(text(replay).await, "receipt 7");
}

#[tokio::test]
async fn reserved_headers_of_a_stream_are_replaced_too() {
    let service = marking("text/event-stream", "data: 1\n\n", builder());
    let first = answer(&service, charge("a")).await;
    assert_eq!(marks(&first), [""; 0]);
    assert_eq!(text(first).await, "data: 1\n\n");
    let replay = answer(&service, charge("a")).await;
    let ours = ["idempotency-body", "idempotency-body-length", "idempotent-replayed"];
    assert_eq!(marks(&replay), ours);
    assert_eq!(replay.headers()["idempotency-body-length"], "9");
}

#[tokio::test]
async fn reserved_headers_in_trailers_are_removed_too() {
    for media_type in ["text/plain", "text/event-stream"] {
        let handler = move || async move {
            let mut trailers = HeaderMap::new();
            for (name, value) in MARKS.into_iter().chain([("x-sum", "7")]) {
                trailers.insert(name, value.parse().unwrap());
            }
            let frames =
                [infallible(Frame::data(Bytes::from_static(b"x"))), Ok(Frame::trailers(trailers))];
            ([(CONTENT_TYPE, media_type)], Body::new(StreamBody::new(stream::iter(frames))))
        };
        let service = Router::new().route("/orders/{id}", post(handler));
        let service = service.layer(builder().build().unwrap());
        for _ in 0..2 {
            let response = answer(&service, charge("a")).await.into_body().collect().await.unwrap();
            let trailers: Vec<_> =
                response.trailers().unwrap().keys().map(|it| it.as_str()).collect();
            assert_eq!(trailers, ["x-sum"], "{media_type}");
        }
    }
}

#[tokio::test]
async fn a_route_that_is_off_or_observed_changes_no_header() {
    for mode in [Mode::Off, Mode::Observe] {
        let layer = builder().policy(RoutePolicy::api().mode(mode));
        let response = answer(&marking("text/plain", "done", layer), charge("a")).await;
        assert_eq!(marks(&response).len(), MARKS.len(), "{mode:?}");
    }
}

/// A problem's name is accepted only on the status of that problem.
#[tokio::test]
async fn semel_status_of_an_upstream_does_not_free_the_key() {
    for (status, name) in [
        (StatusCode::OK, "attempt-failed"),
        (StatusCode::CREATED, "in-progress"),
        (StatusCode::UNPROCESSABLE_ENTITY, "store-unavailable"),
        (StatusCode::CONFLICT, "no-such-name"),
    ] {
        let runs = RunCounter::default();
        let counted = runs.clone();
        let handler = move || async move {
            let run = counted.count();
            (status, [("semel-status", name)], format!("run {run}"))
        };
        let service =
            Router::new().route("/orders/{id}", post(handler)).layer(builder().build().unwrap());
        for replayed in [false, true] {
            let response = answer(&service, charge("a")).await;
            assert_eq!(response.status(), status);
            assert!(!response.headers().contains_key("semel-status"), "{status} {name}");
            assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
            assert_eq!(text(response).await, "run 1", "{status} {name}");
        }
    }
}

/// An inner semel replays an answer whose body it did not keep, so the outer layer cannot have the body either.
#[tokio::test]
async fn a_body_that_an_inner_semel_omits_is_never_replayed_as_an_empty_one() {
    for (media_type, body) in [("text/event-stream", "data: 1\n\n"), ("text/plain", "too large")] {
        let handler = move || async move { ([(CONTENT_TYPE, media_type)], Body::from(body)) };
        let small = RoutePolicy::api().max_response_bytes(8);
        let inner = Router::new()
            .route("/orders/{id}", post(handler))
            .layer(builder().namespace("inner").policy(small).build().unwrap());
        assert_eq!(text(answer(&inner, charge("a")).await).await, body);
        let outer = inner.layer(builder().build().unwrap());
        for replayed in [false, true] {
            let response = answer(&outer, charge("a")).await;
            assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
            assert_eq!(response.headers()["idempotency-body"], "omitted", "{media_type}");
            assert_eq!(response.headers()["idempotency-body-length"], "9", "{media_type}");
            assert_eq!(response.headers()["content-type"], media_type);
            assert_eq!(text(response).await, "");
        }
    }
}

/// Only the outer layer decides whether its answer is a replay.
#[tokio::test]
async fn a_first_answer_is_not_marked_as_a_replay_if_an_inner_semel_replayed_it() {
    let inner = Router::new()
        .route("/orders/{id}", post(|| async { "done".into_response() }))
        .layer(builder().namespace("inner").build().unwrap());
    answer(&inner, charge("a")).await;
    let outer = inner.layer(builder().build().unwrap());
    for replayed in [false, true] {
        let response = answer(&outer, charge("a")).await;
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        assert_eq!(text(response).await, "done");
    }
}
