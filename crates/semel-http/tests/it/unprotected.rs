//! A key on a method that is not protected has no effect, and is counted and logged.

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
    response::Response,
    routing::any,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_http::{RoutePolicy, telemetry};

use crate::harness::{answer, builder};

/// Counts metrics on this thread until the guard is dropped.
fn listen() -> (Snapshotter, impl Drop) {
    let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
    (recorder.snapshotter(), metrics::set_default_local_recorder(recorder))
}

fn counted(snapshotter: &Snapshotter) -> Vec<(String, u64)> {
    let mut counted = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        if let (telemetry::name::HTTP_UNPROTECTED, DebugValue::Counter(count)) = (key.name(), value)
        {
            counted.push((key.labels().next().unwrap().value().to_owned(), count));
        }
    }
    counted.sort();
    counted
}

async fn send(service: &Router, method: Method, key: Option<&str>) -> Response {
    let request = Request::builder().method(method).uri("/orders");
    let request = key.into_iter().fold(request, |it, key| it.header("idempotency-key", key));
    answer(service, request.body(Body::empty()).unwrap()).await
}

fn service(layer: crate::harness::LayerBuilder) -> Router {
    Router::new().route("/orders", any(|| async { "done" })).layer(layer.build().unwrap())
}

#[tokio::test]
async fn a_key_on_a_method_that_is_not_protected_is_counted() {
    let (snapshotter, _guard) = listen();
    let made_up = Method::from_bytes(b"MADE-UP").unwrap();
    for layer in [builder(), builder().route("POST /refunds", RoutePolicy::api())] {
        let service = service(layer);
        for (method, key) in [
            (Method::GET, Some("a")),
            (Method::GET, Some("b")),
            (Method::GET, None),
            (made_up.clone(), Some("a")),
            (Method::POST, Some("a")),
            (Method::POST, None),
        ] {
            assert_eq!(send(&service, method, key).await.status(), 200);
        }
        assert_eq!(counted(&snapshotter), [("GET".to_owned(), 2), ("other".to_owned(), 1)]);
    }
}

#[tokio::test]
async fn a_key_on_a_protected_get_route_is_not_counted_by_the_layer_or_an_inner_layer() {
    let (snapshotter, _guard) = listen();
    let service = service(builder().namespace("inner"));
    let service =
        service.layer(builder().route("GET /orders", RoutePolicy::api()).build().unwrap());
    for replayed in [false, true] {
        let response = send(&service, Method::GET, Some("a")).await;
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
    }
    assert_eq!(counted(&snapshotter), []);
}
