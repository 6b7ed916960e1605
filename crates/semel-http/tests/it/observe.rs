//! Observe mode counts what enforcing would have done, and changes no request and no answer.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel_core::{Engine, MemoryStore, OnLostOwner, Store};
use semel_http::{Anonymous, Idempotency, IdempotencyLayer, KeyFrom, Mode, RoutePolicy, telemetry};

use crate::harness::{answer, builder, keyed_post, problem, sent, text, wait_until};

/// The results that observe mode counted. They are counted after the answer.
pub(crate) struct ObservedCounts {
    snapshotter: Snapshotter,
    results: BTreeMap<String, u64>,
}

impl ObservedCounts {
    /// Counts results on this thread until the guard is dropped.
    pub(crate) fn listen() -> (Self, impl Drop) {
        let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
        let snapshotter = recorder.snapshotter();
        let guard = metrics::set_default_local_recorder(recorder);
        (Self { snapshotter, results: BTreeMap::new() }, guard)
    }

    /// The results of this many requests, once all of them are counted.
    pub(crate) async fn of(mut self, requests: u64) -> BTreeMap<String, u64> {
        self.counted(requests).await;
        self.results
    }

    pub(crate) async fn counted(&mut self, requests: u64) {
        wait_until("all are counted", async || {
            self.take();
            self.results.values().sum::<u64>() >= requests
        })
        .await;
    }

    /// Adds a snapshot. Each snapshot resets the counters.
    fn take(&mut self) {
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let key = key.key();
            if let (telemetry::name::HTTP_OBSERVED, DebugValue::Counter(count)) =
                (key.name(), value)
            {
                let result = key.labels().next().unwrap().value().to_owned();
                *self.results.entry(result).or_default() += count;
            }
        }
    }
}

/// The results for requests with these bodies and one key, to a handler with this answer.
pub(crate) async fn observed(
    bodies: &[&'static str],
    response: impl IntoResponse + Clone + Send + Sync + 'static,
) -> Vec<(String, u64)> {
    let (mut observed, _guard) = ObservedCounts::listen();
    let layer = builder().policy(RoutePolicy::api().mode(Mode::Observe)).build().unwrap();
    let handler = move |_: Bytes| async move { response };
    let service = Router::new().route("/", post(handler)).layer(layer);
    for (sent, body) in (1..).zip(bodies) {
        answer(&service, keyed_post("/", "a", *body)).await;
        observed.counted(sent).await;
    }
    observed.of(0).await.into_iter().collect()
}

#[tokio::test]
async fn observing_counts_firsts_replays_and_mismatches() {
    let counts = observed(&["x", "x", "y"], "done").await;
    let of = |name: &str| (name.to_owned(), 1);
    assert_eq!(counts, [of("fingerprint-mismatch"), of("first"), of("replay")]);
}

/// Enforcing would not record a problem of an inner semel, so the second request would run too.
#[tokio::test]
async fn observing_honours_semel_status() {
    let busy = (StatusCode::CONFLICT, [("semel-status", "in-progress")], "busy");
    assert_eq!(observed(&["x", "x"], busy).await, [("first".to_owned(), 2)]);
}

/// Copies for observing have a budget of their own.
#[tokio::test]
async fn observing_one_route_refuses_no_request_on_another() {
    const LARGE: usize = 700_000;
    let layer = builder()
        .route("POST /observed", RoutePolicy::api().mode(Mode::Observe))
        .buffer_bytes((1 << 20) + 4096)
        .build()
        .unwrap();
    let hang = post(|body: Bytes| async move {
        drop(body);
        pending::<()>().await;
    });
    let service = Router::new()
        .route("/observed", hang)
        .route("/enforced", post(|_: Bytes| async {}))
        .layer(layer);
    let _hanging = sent(&service, keyed_post("/observed", "a", vec![b'x'; LARGE]));
    let response = answer(&service, keyed_post("/enforced", "b", vec![b'x'; LARGE])).await;
    assert_eq!(response.status(), StatusCode::OK, "{:?}", problem(&response));
}

#[tokio::test]
async fn a_handler_with_the_extractor_works_in_observe_and_off() {
    for mode in [Mode::Observe, Mode::Off] {
        let layer = builder().policy(RoutePolicy::api().mode(mode)).build().unwrap();
        let handler = |context: Idempotency| async move { context.attempt().to_string() };
        let service = Router::new().route("/", post(handler)).layer(layer);
        let response: Response = answer(&service, keyed_post("/", "a", "x")).await;
        assert_eq!(response.status(), StatusCode::OK, "{mode:?}: a key was sent");
    }
}

/// The key is known only after the body is read.
#[tokio::test]
async fn a_handler_with_the_extractor_works_in_observe_and_off_with_the_key_in_the_body() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let policy = RoutePolicy::api().key_from(KeyFrom::json_pointer("/id")).mode(mode);
        let layer = builder().policy(policy).build().unwrap();
        let handler = |_: Idempotency, body: Bytes| async move { body };
        let service = Router::new().route("/", post(handler)).layer(layer);
        let request = Request::post("/").body(Body::from(r#"{"id":"a"}"#)).unwrap();
        let response = answer(&service, request).await;
        assert_eq!(response.status(), StatusCode::OK, "{mode:?}: {:?}", problem(&response));
        assert_eq!(text(response).await, r#"{"id":"a"}"#);
    }
}

/// Records on hold never expire.
#[tokio::test]
async fn observing_a_hold_route_leaves_nothing_for_an_operator() {
    let (observed, _guard) = ObservedCounts::listen();
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::builder().store(store.clone()).build().unwrap();
    let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold).mode(Mode::Observe);
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous).policy(hold);
    let handler = |_: Bytes| async { StatusCode::REQUEST_TIMEOUT };
    let service = Router::new().route("/", post(handler)).layer(layer.build().unwrap());
    answer(&service, keyed_post("/", "a", "x")).await;
    assert_eq!(observed.of(1).await["first"], 1);
    assert_eq!(store.stats().await.unwrap().unknown, 0);
}

/// Enforcing would accept the body, so an operator must not raise its limit.
#[tokio::test]
async fn a_body_over_the_budget_is_not_counted_as_too_large() {
    let (observed, _guard) = ObservedCounts::listen();
    let layer = builder()
        .policy(RoutePolicy::api().mode(Mode::Observe))
        .buffer_bytes((1 << 20) + 4096)
        .build()
        .unwrap();
    let service = Router::new().route("/", post(|_: Bytes| async {})).layer(layer);
    answer(&service, keyed_post("/", "a", vec![b'x'; 300_000])).await;
    assert_eq!(observed.of(1).await, [("overloaded".to_owned(), 1)].into());
}
