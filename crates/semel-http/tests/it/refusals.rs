//! Requests that are refused: nothing ran, and the answer says what to do.

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, Version},
    response::Response,
    routing::post,
};
use bytes::Bytes;
use futures_util::stream;
use semel_conformance::http::{Breakable, Switch};
use semel_core::{Engine, ManualClock, MemoryStore, Result, Stats, Store, StoreDown, StoreInfo};
use semel_http::{Anonymous, Idempotency, IdempotencyLayer, RoutePolicy, header};
use tokio::time::Instant;

use crate::harness::{
    HandlerGate, RunCounter, answer, builder, charge, counting, engine, gated, keyed_post, problem,
    sent, text,
};

fn over(engine: &Engine, policy: RoutePolicy) -> IdempotencyLayer {
    IdempotencyLayer::builder(engine.clone()).principal(Anonymous).policy(policy).build().unwrap()
}

fn assert_retry_later(response: &Response, name: &str) {
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem(response), Some(name));
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["stripe-should-retry"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_in_time_is_refused_and_its_key_is_free() {
    let runs = RunCounter::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let asked_at = Instant::now();
    let response = answer(&service, keyed_post("/orders/7", "a", stalled)).await;
    assert!(asked_at.elapsed() >= RoutePolicy::READ_TIMEOUT);
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(problem(&response), Some("body-timeout"));
    assert_eq!(response.headers()["stripe-should-retry"], "true");
    assert_eq!(runs.total(), 0);
    assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_and_its_key_is_free() {
    let runs = RunCounter::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let broken = [Ok(Bytes::from_static(b"5 ")), Err("reset")];
    let broken = Body::from_stream(stream::iter(broken));
    let response = answer(&service, keyed_post("/orders/7", "a", broken)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&response), Some("body-unreadable"));
    assert_eq!(response.headers()["stripe-should-retry"], "true");
    assert_eq!(runs.total(), 0);
    assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_replays_recorded_ones() {
    let store = MemoryStore::builder().max_entries(1).build().unwrap();
    let engine = Engine::builder().store(store).build().unwrap();
    let runs = RunCounter::default();
    let service = counting(&runs).layer(over(&engine, RoutePolicy::api()));
    answer(&service, charge("known")).await;
    assert_retry_later(&answer(&service, charge("new")).await, "store-full");
    assert_eq!(text(answer(&service, charge("known")).await).await, "run 1");
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn a_service_that_shuts_down_refuses_new_requests() {
    let (engine, runs) = (engine(), RunCounter::default());
    let service = counting(&runs).layer(over(&engine, RoutePolicy::api()));
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
    assert_retry_later(&answer(&service, charge("a")).await, "shutting-down");
    assert_eq!(runs.total(), 0);
}

/// A route may choose to run unprotected if a duplicate does less harm than an outage.
#[tokio::test]
async fn while_the_store_is_down_a_route_refuses_or_runs_unprotected_with_a_header() {
    let broken = Switch::default();
    let store = Breakable::new(MemoryStore::new(), broken.clone());
    let engine = Engine::builder().store(store).build().unwrap();
    let runs = RunCounter::default();
    let impatient = || RoutePolicy::api().wait(Duration::ZERO);
    let refuses = counting(&runs).layer(over(&engine, impatient()));
    let unprotected = impatient().store_down(StoreDown::RunUnprotected);
    let passes = counting(&runs).layer(over(&engine, unprotected));
    broken.set(true);
    assert_retry_later(&answer(&refuses, charge("a")).await, "store-unavailable");
    assert_eq!(runs.total(), 0);
    for run in ["run 1", "run 2"] {
        let response = answer(&passes, charge("a")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["idempotency-stored"], "false");
        assert_eq!(text(response).await, run);
    }
    broken.set(false);
    assert!(!answer(&passes, charge("a")).await.headers().contains_key("idempotency-stored"));
}

/// A store that panics in a claim.
#[derive(Debug)]
struct PanickingStore(MemoryStore);

impl PanickingStore {
    fn at(step: &str) {
        assert_ne!(step, "claim", "a bug in the store");
    }
}

macro_rules! panicking {
    ($($name:ident($request:ty) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for PanickingStore {
            fn info(&self) -> StoreInfo {
                self.0.info()
            }
            $(async fn $name(&self, request: $request) -> $answer {
                Self::at(stringify!($name));
                self.0.$name(request).await
            })*
            async fn stats(&self) -> Result<Stats> {
                self.0.stats().await
            }
        }
    };
}

semel_core::__store_steps!(panicking);

#[tokio::test]
async fn a_panic_in_the_store_is_answered_with_store_unavailable() {
    let engine = Engine::builder().store(PanickingStore(MemoryStore::new())).build().unwrap();
    let runs = RunCounter::default();
    let service = counting(&runs).layer(over(&engine, RoutePolicy::api().wait(Duration::ZERO)));
    assert_retry_later(&answer(&service, charge("a")).await, "store-unavailable");
    assert_eq!(runs.total(), 0);
}

/// Leases are long and most runs are short. `Retry-After` is the rest of the lease in whole seconds, at most three.
#[tokio::test]
async fn retry_after_of_a_key_in_progress_is_at_most_three_seconds() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build().unwrap());
    let policy = RoutePolicy::api()
        .wait(Duration::ZERO)
        .with(|policy| policy.lease(Duration::from_secs(60)));
    let node = || over(&Engine::builder().store(store.clone()).build().unwrap(), policy.clone());
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let _running = sent(&gated(&gate, &runs, ()).layer(node()), charge("a"));
    for (passed, left) in [(0, "3"), (30_000, "3"), (28_000, "2"), (1, "2"), (999, "1")] {
        clock.advance(Duration::from_millis(passed));
        let elsewhere = gated(&gate, &runs, ()).layer(node());
        let response = answer(&elsewhere, charge("a")).await;
        assert_eq!(problem(&response), Some("in-progress"));
        assert_eq!(response.headers()["retry-after"], left);
    }
    assert_eq!(runs.total(), 1);
}

/// HTTP/2 does not need the header: the rest of a body belongs to its stream only.
#[tokio::test]
async fn only_http_1_closes_its_connection_when_a_body_was_not_read() {
    let layer = builder().policy(RoutePolicy::api().max_request_bytes(5)).build().unwrap();
    let service = counting(&RunCounter::default()).layer(layer);
    for (key, body, name, unread) in [
        ("a, b", "5 EUR", "key-invalid", true),
        ("a, b", "", "key-invalid", false),
        ("a", "50 EUR", "body-too-large", true),
    ] {
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            let mut request = keyed_post("/orders/7", key, body);
            *request.version_mut() = version;
            let response = answer(&service, request).await;
            assert_eq!(problem(&response), Some(name));
            let closes = response.headers().get("connection").is_some_and(|it| it == "close");
            assert_eq!(closes, unread && version != Version::HTTP_2, "{name} {version:?}");
        }
    }
}

#[tokio::test]
async fn the_extractors_answer_has_the_configured_problem_base() {
    let layer = builder().problem_base("https://example.org/problems/").build().unwrap();
    let service = Router::new().route("/", post(|_: Idempotency| async {})).layer(layer);
    let response =
        text(answer(&service, Request::post("/").body(Body::empty()).unwrap()).await).await;
    assert!(response.contains("https://example.org/problems/key-missing"), "{response}");
}

#[test]
fn scripts_may_read_retry_after() {
    assert!(header::EXPOSED.contains("Retry-After"));
}
