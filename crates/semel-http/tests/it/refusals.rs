//! Requests that are turned away: nothing ran, and the answer says what to do.

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, Version},
    response::Response,
    routing::post,
};
use bytes::Bytes;
use futures_util::stream;
use semel_core::{Engine, MemoryStore, StoreDown};
use semel_http::{Anonymous, Idempotency, IdempotencyLayer, RoutePolicy, header};
use tokio::time::Instant;

use crate::{
    scene::{Runs, answer, ask, builder, charge, counting, engine, problem, text},
    store::{Breakable, Switch},
};

fn over(engine: &Engine, policy: RoutePolicy) -> IdempotencyLayer {
    IdempotencyLayer::builder(engine.clone()).principal(Anonymous).policy(policy).build().unwrap()
}

fn is_come_back_later(said: &Response, name: &str) {
    assert_eq!(said.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem(said), Some(name));
    assert_eq!(said.headers()["retry-after"], "1");
    assert_eq!(said.headers()["stripe-should-retry"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_in_time_is_refused_and_its_key_is_free() {
    let runs = Runs::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let asked_at = Instant::now();
    let said = answer(&service, ask("/orders/7", "a", stalled)).await;
    assert!(asked_at.elapsed() >= RoutePolicy::READ_TIMEOUT);
    assert_eq!(said.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(problem(&said), Some("body-timeout"));
    assert_eq!(said.headers()["stripe-should-retry"], "true");
    assert_eq!(runs.so_far(), 0);
    assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_and_its_key_is_free() {
    let runs = Runs::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let broken = [Ok(Bytes::from_static(b"5 ")), Err("reset")];
    let broken = Body::from_stream(stream::iter(broken));
    let said = answer(&service, ask("/orders/7", "a", broken)).await;
    assert_eq!(said.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&said), Some("body-unreadable"));
    assert_eq!(said.headers()["stripe-should-retry"], "true");
    assert_eq!(runs.so_far(), 0);
    assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
}

#[tokio::test]
async fn a_full_store_takes_no_new_key_and_answers_those_it_has() {
    let store = MemoryStore::builder().max_entries(1).build().unwrap();
    let engine = Engine::builder().store(store).build().unwrap();
    let runs = Runs::default();
    let service = counting(&runs).layer(over(&engine, RoutePolicy::api()));
    answer(&service, charge("known")).await;
    is_come_back_later(&answer(&service, charge("new")).await, "store-full");
    assert_eq!(text(answer(&service, charge("known")).await).await, "run 1");
    assert_eq!(runs.so_far(), 1);
}

#[tokio::test]
async fn a_service_that_shuts_down_takes_no_new_work() {
    let (engine, runs) = (engine(), Runs::default());
    let service = counting(&runs).layer(over(&engine, RoutePolicy::api()));
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
    is_come_back_later(&answer(&service, charge("a")).await, "shutting-down");
    assert_eq!(runs.so_far(), 0);
}

/// That is the choice of a route on which a duplicate does less harm than an outage.
#[tokio::test]
async fn without_its_store_a_route_refuses_or_runs_unprotected_and_says_so() {
    let broken = Switch::default();
    let store = Breakable::new(MemoryStore::new(), broken.clone());
    let engine = Engine::builder().store(store).build().unwrap();
    let runs = Runs::default();
    let impatient = || RoutePolicy::api().wait(Duration::ZERO);
    let refuses = counting(&runs).layer(over(&engine, impatient()));
    let unprotected = impatient().store_down(StoreDown::RunUnprotected);
    let passes = counting(&runs).layer(over(&engine, unprotected));
    broken.set(true);
    is_come_back_later(&answer(&refuses, charge("a")).await, "store-unavailable");
    assert_eq!(runs.so_far(), 0);
    for run in ["run 1", "run 2"] {
        let said = answer(&passes, charge("a")).await;
        assert_eq!(said.status(), StatusCode::OK);
        assert_eq!(said.headers()["idempotency-stored"], "false");
        assert_eq!(text(said).await, run);
    }
    broken.set(false);
    assert!(!answer(&passes, charge("a")).await.headers().contains_key("idempotency-stored"));
}

/// HTTP/2 has no such header, and needs none: what is left of a body is its stream's own affair.
#[tokio::test]
async fn only_http_1_closes_its_connection_when_a_body_was_not_read() {
    let runs = Runs::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    for (version, closes) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
        let mut request = charge("a, b");
        *request.version_mut() = version;
        let said = answer(&service, request).await;
        assert_eq!(problem(&said), Some("key-invalid"));
        assert_eq!(said.headers().contains_key("connection"), closes, "{version:?}");
    }
}

#[tokio::test]
async fn the_extractors_answer_has_the_configured_type() {
    let layer = builder().problem_base("https://example.org/problems/").build().unwrap();
    let service = Router::new().route("/", post(|_: Idempotency| async {})).layer(layer);
    let said = text(answer(&service, Request::post("/").body(Body::empty()).unwrap()).await).await;
    assert!(said.contains("https://example.org/problems/key-missing"), "{said}");
}

#[test]
fn scripts_may_read_retry_after() {
    assert!(header::EXPOSED.contains("Retry-After"));
}
