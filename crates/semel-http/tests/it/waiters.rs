//! A request whose operation is already running waits for it, and gets the same answer.

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::future::join;
use semel_core::{Engine, MemoryStore, RecordFailures, StoreDown};
use semel_http::{Anonymous, IdempotencyLayer, RoutePolicy};

use crate::harness::{
    HandlerGate, LayerBuilder, RunCounter, answer, builder, charge, gated, problem, sent, text,
    without_backoff,
};

/// The answers to the first caller and to a caller that waited for its run.
async fn both(
    response: impl IntoResponse + Clone + Send + Sync + 'static,
    layer: LayerBuilder,
) -> (Response, Response) {
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let service = gated(&gate, &runs, response).layer(layer.build().unwrap());
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    let (first, second) = join(first, second).await;
    assert_eq!(runs.total(), 1, "one of them waited");
    (first.unwrap(), second.unwrap())
}

#[tokio::test]
async fn a_waiter_gets_the_recorded_answer() {
    let (first, second) = both("receipt 7", builder()).await;
    assert!(!first.headers().contains_key("idempotent-replayed"));
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!((text(first).await, text(second).await), ("receipt 7".into(), "receipt 7".into()));
}

/// Without `Semel-Status`, an outer semel would record the 409 as the outcome.
#[tokio::test]
async fn a_waiter_gets_the_problem_headers_of_an_inner_semel() {
    let busy = (
        StatusCode::CONFLICT,
        [("semel-status", "in-progress"), ("stripe-should-retry", "true"), ("retry-after", "3")],
        "busy",
    );
    let (first, second) = both(busy, builder()).await;
    assert_eq!(problem(&first), Some("in-progress"));
    assert_eq!(second.status(), StatusCode::CONFLICT);
    assert_eq!(problem(&second), Some("in-progress"));
}

#[tokio::test]
async fn a_waiter_gets_the_retry_after_of_a_429() {
    let limited = (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "30")], "later");
    let (first, second) = both(limited, builder()).await;
    assert_eq!(first.headers()["retry-after"], "30");
    assert_eq!(second.headers()["retry-after"], "30");
}

#[tokio::test]
async fn a_waiter_gets_a_failure_that_is_not_recorded() {
    let policy = RoutePolicy::api().with(|policy| policy.record_failures(RecordFailures::Never));
    let declined = (StatusCode::UNPROCESSABLE_ENTITY, "declined");
    let (first, second) = both(declined, builder().policy(policy)).await;
    assert_eq!(first.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(second.status(), StatusCode::UNPROCESSABLE_ENTITY, "{:?}", second.headers());
}

#[tokio::test]
async fn a_waiter_gets_the_header_of_an_answer_that_is_not_stored() {
    let store = MemoryStore::builder().max_entries(1).build().unwrap();
    let engine = Engine::builder().store(store).build().unwrap();
    let policy = RoutePolicy::api().store_down(StoreDown::RunUnprotected);
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous).policy(policy);
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let service = gated(&gate, &runs, ()).layer(layer.build().unwrap());
    let filler = sent(&service, charge("filler"));
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    filler.await.unwrap();
    let (first, second) = join(first, second).await;
    assert_eq!(first.unwrap().headers()["idempotency-stored"], "false");
    assert_eq!(second.unwrap().headers()["idempotency-stored"], "false");
}

/// The run may have taken effect, so the waiter must not run it again at once.
#[tokio::test]
async fn a_waiter_for_a_run_that_panicked_gets_attempt_failed_and_does_not_run() {
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let (opened, counted) = (gate.clone(), runs.clone());
    let handler = move || async move {
        let run = counted.count();
        opened.wait_open().await;
        assert!(run > 1, "the first one fails");
        "done"
    };
    let layer = builder().policy(without_backoff()).build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    let (first, second) = join(first, second).await;
    for response in [first.unwrap(), second.unwrap()] {
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(problem(&response), Some("attempt-failed"));
        assert!(response.headers().contains_key("retry-after"));
    }
    assert_eq!(runs.total(), 1);
    assert_eq!(text(answer(&service, charge("a")).await).await, "done");
}

#[tokio::test]
async fn a_waiter_gets_the_answer_only_if_the_hook_allows_it() {
    let layer =
        builder().authorize_replay(|parts| async move { !parts.headers.contains_key("x-revoked") });
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let service = gated(&gate, &runs, "receipt 7").layer(layer.build().unwrap());
    let first = sent(&service, charge("a"));
    let mut revoked = charge("a");
    revoked.headers_mut().insert("x-revoked", "1".parse().unwrap());
    let (revoked, allowed) = (sent(&service, revoked), sent(&service, charge("a")));
    gate.open();
    assert_eq!(text(first.await.unwrap()).await, "receipt 7");
    let revoked = revoked.await.unwrap();
    assert_eq!(revoked.status(), StatusCode::FORBIDDEN);
    assert_eq!(problem(&revoked), Some("replay-forbidden"));
    assert!(!text(revoked).await.contains("receipt 7"));
    assert_eq!(text(allowed.await.unwrap()).await, "receipt 7");
}
