//! A run past `max_run` loses its key.

use std::{future::pending, time::Duration};

use axum::{Router, body::Body, http::StatusCode, response::IntoResponse, routing::post};
use bytes::Bytes;
use futures_util::stream;
use semel_http::RoutePolicy;

use crate::{
    harness::{
        RunCounter, answer, builder, infallible, keyed_post, sent, text, wait_until,
        without_backoff,
    },
    observe::observed,
};

pub(crate) fn short_lived() -> RoutePolicy {
    let lease = Duration::from_millis(100);
    without_backoff().wait(Duration::ZERO).with(|policy| policy.lease(lease).max_run(lease * 2))
}

/// Waits for the second run, whose answer is recorded.
async fn assert_runs_again(service: &Router) {
    wait_until("the key is free", async || {
        answer(service, keyed_post("/", "a", "x")).await.status() == StatusCode::OK
    })
    .await;
    assert_eq!(text(answer(service, keyed_post("/", "a", "x")).await).await, "again");
}

/// A relay waits for its client to read, but not longer than `max_run`.
#[tokio::test]
async fn a_client_that_does_not_read_cannot_hold_its_key_past_max_run() {
    let runs = RunCounter::default();
    let handler = move || async move {
        if runs.count() > 1 {
            return "again".into_response();
        }
        let events = stream::repeat_with(|| infallible(Bytes::from_static(b"data: 1\n\n")));
        ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
    };
    let layer = builder().policy(short_lived()).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    let _unread = answer(&service, keyed_post("/", "a", "x")).await;
    assert_runs_again(&service).await;
}

/// Without the layer, a handler ends when its client disconnects.
#[tokio::test]
async fn a_handler_that_hangs_loses_its_key_after_max_run() {
    let runs = RunCounter::default();
    let handler = move || async move {
        if runs.count() == 1 {
            pending::<()>().await;
        }
        "again"
    };
    let layer = builder().policy(short_lived()).build().unwrap();
    let service = Router::new().route("/", post(handler)).layer(layer);
    drop(sent(&service, keyed_post("/", "a", "x")));
    assert_runs_again(&service).await;
}

/// Enforcing keeps the fingerprint of a failed attempt: another payload is a mismatch.
#[tokio::test]
async fn observing_counts_a_mismatch_after_a_failed_attempt() {
    let counts = observed(&["x", "y"], (StatusCode::BAD_GATEWAY, "down")).await;
    assert_eq!(counts, [("fingerprint-mismatch".to_owned(), 1), ("first".to_owned(), 1)]);
}
