//! A run on a hold route whose effect cannot be known leaves its key Unknown, and every caller gets
//! `outcome-unknown`.

use std::time::Duration;

use axum::{
    Extension, Router,
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::future::join;
use semel_conformance::http::{Breakable, Switch};
use semel_core::{Engine, MemoryStore, OnLostOwner};
use semel_http::{Anonymous, HandlerVerdict, IdempotencyLayer, Problem, RoutePolicy};

use crate::harness::{
    HandlerGate, RunCounter, answer, builder, charge, gated, problem, sent, text, without_backoff,
};

fn hold() -> RoutePolicy {
    without_backoff().on_lost_owner(OnLostOwner::Hold)
}

/// The answer of a proxy whose upstream gave none.
#[derive(Clone)]
struct UpstreamFailed;

impl IntoResponse for UpstreamFailed {
    fn into_response(self) -> Response {
        let response = Problem::upstream_failed().response(Problem::BASE).map(Body::from);
        (Extension(HandlerVerdict::Indeterminate), response).into_response()
    }
}

/// Asserts that the answer is `outcome-unknown` and advises against a retry. Returns its body.
async fn assert_unknown(response: Response) -> String {
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert_eq!(problem(&response), Some("outcome-unknown"));
    assert_eq!(response.headers()["stripe-should-retry"], "false");
    assert!(!response.headers().contains_key("retry-after"), "{:?}", response.headers());
    let body = text(response).await;
    assert!(!body.contains("send the same request again"), "{body}");
    body
}

#[tokio::test]
async fn no_caller_is_advised_to_retry_a_run_that_broke_off() {
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let service =
        gated(&gate, &runs, UpstreamFailed).layer(builder().policy(hold()).build().unwrap());
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    let (first, second) = join(first, second).await;
    let body = assert_unknown(first.unwrap()).await;
    assert!(body.contains("The upstream gave no answer"), "{body}");
    assert_unknown(second.unwrap()).await;
    assert_unknown(answer(&service, charge("a")).await).await;
    assert_eq!(runs.total(), 1);
}

/// The key becomes Unknown when its lease ends.
#[tokio::test]
async fn no_caller_is_advised_to_retry_when_the_store_is_down_too() {
    let switch = Switch::default();
    let store = Breakable::new(MemoryStore::new(), switch.clone());
    let engine = Engine::builder().store(store).build().unwrap();
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous);
    let layer = layer.policy(hold().wait(Duration::from_millis(10))).build().unwrap();
    let handler = move || async move {
        switch.set(true);
        UpstreamFailed
    };
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    assert_unknown(answer(&service, charge("a")).await).await;
}

#[tokio::test]
async fn a_handlers_own_answer_loses_its_advice_to_retry() {
    let late = (StatusCode::REQUEST_TIMEOUT, [("retry-after", "30")], "the bank is slow");
    let gate = HandlerGate::closed();
    gate.open();
    let layer = builder().policy(hold()).build().unwrap();
    let service = gated(&gate, &RunCounter::default(), late).layer(layer);
    let first = answer(&service, charge("a")).await;
    assert_eq!(first.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(first.headers()["stripe-should-retry"], "false");
    assert!(!first.headers().contains_key("retry-after"));
    assert_eq!(text(first).await, "the bank is slow");
    assert_unknown(answer(&service, charge("a")).await).await;
}

/// On a rerun route the advice is right.
#[tokio::test]
async fn a_run_that_broke_off_may_be_retried_on_a_rerun_route() {
    let gate = HandlerGate::closed();
    gate.open();
    let service =
        gated(&gate, &RunCounter::default(), UpstreamFailed).layer(builder().build().unwrap());
    let first = answer(&service, charge("a")).await;
    assert_eq!(problem(&first), Some("upstream-failed"));
    assert_eq!(first.headers()["stripe-should-retry"], "true");
    assert!(first.headers().contains_key("retry-after"));
}
