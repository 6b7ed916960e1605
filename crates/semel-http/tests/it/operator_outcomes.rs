//! Answers from outcomes that an operator recorded.

use std::sync::Arc;

use axum::{Router, http::StatusCode, response::Response, routing::post};
use semel_core::{
    Decision, Engine, Head, ListQuery, MemoryStore, OnLostOwner, Outcome, ResolveRequest, Store,
};
use semel_http::{Anonymous, IdempotencyLayer, RoutePolicy};

use crate::harness::{RunCounter, answer, charge, problem};

/// The answer to a request on a hold route whose run was lost, after an operator has set the outcome.
async fn resolved(outcome: Outcome) -> Response {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::builder().store(store.clone()).build().unwrap();
    let hold = RoutePolicy::api().on_lost_owner(OnLostOwner::Hold);
    let layer = IdempotencyLayer::builder(engine.clone()).principal(Anonymous).policy(hold);
    let runs = RunCounter::default();
    let handler = move || async move { assert!(runs.count() > 1, "the first run is lost") };
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer.build().unwrap());
    let lost = answer(&service, charge("a")).await;
    assert_eq!(problem(&lost), Some("outcome-unknown"));
    let record = store.list(&ListQuery::default()).await.unwrap().remove(0);
    let request = ResolveRequest {
        key: record.key,
        seen_nonce: record.nonce,
        seen_token: record.token,
        decision: Decision::Complete(Arc::new(outcome)),
    };
    engine.resolve(&request, "looked it up").await.unwrap();
    answer(&service, charge("a")).await
}

#[tokio::test]
async fn a_failure_that_an_operator_recorded_is_not_answered_with_200() {
    let response = resolved(Outcome::failure("card_declined", "the bank says no")).await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn the_content_type_that_an_operator_recorded_is_sent() {
    let head = Head { content_type: Some("application/json".into()), ..Head::default() };
    let response = resolved(Outcome::success("{}").with_head(head)).await;
    assert_eq!(response.headers()["content-type"], "application/json");
}
