//! Handlers: the context they get, the verdicts they give, and the hook that allows replays.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::IntoResponse,
    routing::post,
};
use semel_http::{Authorization, HandlerVerdict, Idempotency, IdempotencyLayer, RoutePolicy};

use crate::harness::{RunCounter, answer, builder, charge, counting, engine, problem, text};

#[tokio::test]
async fn a_retry_is_answered_with_the_first_answer() {
    let runs = RunCounter::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let first = answer(&service, charge("a")).await;
    assert_eq!(first.headers()["idempotency-key"], "a");
    assert!(!first.headers().contains_key("idempotent-replayed"));
    let retry = answer(&service, charge("a")).await;
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!((text(first).await, text(retry).await), ("run 1".into(), "run 1".into()));
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn a_key_without_a_principal_is_refused() {
    let runs = RunCounter::default();
    let layer = IdempotencyLayer::builder(engine()).principal(Authorization).build().unwrap();
    let response = answer(&counting(&runs).layer(layer), charge("a")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(problem(&response), Some("principal-missing"));
    assert_eq!(runs.total(), 0);
}

#[tokio::test]
async fn a_replay_is_sent_only_to_callers_that_the_hook_allows() {
    let runs = RunCounter::default();
    let allowed =
        builder().authorize_replay(|parts| async move { !parts.headers.contains_key("x-revoked") });
    let service = counting(&runs).layer(allowed.build().unwrap());
    answer(&service, charge("a")).await;
    let mut revoked = charge("a");
    revoked.headers_mut().insert("x-revoked", "1".parse().unwrap());
    let response = answer(&service, revoked).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(answer(&service, charge("a")).await.status(), StatusCode::OK);
    assert_eq!(runs.total(), 1);
}

async fn runs_with_verdict(status: StatusCode, verdict: HandlerVerdict) -> u32 {
    let runs = RunCounter::default();
    let counted = runs.clone();
    let handler = move || async move {
        counted.count();
        (status, Extension(verdict), "said").into_response()
    };
    let service =
        Router::new().route("/orders/{id}", post(handler)).layer(builder().build().unwrap());
    for _ in 0..2 {
        let response = answer(&service, charge("a")).await;
        assert_eq!(response.status(), status);
        assert_eq!(text(response).await, "said");
    }
    runs.total()
}

#[tokio::test]
async fn the_handlers_verdict_overrides_the_status() {
    assert_eq!(runs_with_verdict(StatusCode::BAD_GATEWAY, HandlerVerdict::Final).await, 1);
    assert_eq!(runs_with_verdict(StatusCode::OK, HandlerVerdict::NoEffect).await, 2);
    assert_eq!(runs_with_verdict(StatusCode::OK, HandlerVerdict::Retry).await, 2);
}

#[tokio::test]
async fn an_indeterminate_answer_waits_for_its_backoff_before_it_runs_again() {
    let runs = RunCounter::default();
    let counted = runs.clone();
    let handler = move || async move {
        counted.count();
        (Extension(HandlerVerdict::Indeterminate), "said")
    };
    let resting = RoutePolicy::api()
        .wait(Duration::ZERO)
        .with(|policy| policy.backoff(Duration::from_secs(600)));
    let layer = builder().policy(resting).build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    let first = answer(&service, charge("a")).await;
    assert_eq!(text(first).await, "said");
    let response = answer(&service, charge("a")).await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert_eq!(problem(&response), Some("in-progress"));
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn a_handler_gets_its_attempt_and_its_downstream_key() {
    let handler = |idempotency: Idempotency| async move {
        format!(
            "{} {} {}",
            idempotency.attempt(),
            idempotency.token(),
            idempotency.downstream_key()
        )
    };
    let layer = builder().build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    let response = text(answer(&service, charge("a")).await).await;
    assert!(response.starts_with("1 1 ") && response.len() == 4 + 36, "{response}");
    let other = text(answer(&service, charge("b")).await).await;
    assert_ne!(response, other);
}

#[tokio::test]
async fn a_handler_that_requires_a_context_refuses_a_request_without_a_key() {
    let strict = |_: Idempotency| async { "never" };
    let lax = |found: Option<Idempotency>| async move { format!("{}", found.is_some()) };
    let layer = builder().build().unwrap();
    let service =
        Router::new().route("/strict", post(strict)).route("/lax", post(lax)).layer(layer);
    let keyless = |uri| Request::post(uri).body(Body::empty()).unwrap();
    let strict = answer(&service, keyless("/strict")).await;
    assert_eq!(strict.status(), StatusCode::BAD_REQUEST);
    assert_eq!(problem(&strict), Some("key-missing"));
    assert_eq!(text(answer(&service, keyless("/lax")).await).await, "false");
}

/// A waker whose references are counted.
struct CountedWaker;

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {}
}

/// A handler may poll for the lost lease many times.
#[tokio::test]
async fn a_dropped_wait_for_the_lost_lease_keeps_no_waker() {
    let handler = |idempotency: Idempotency| async move {
        let held = Arc::new(CountedWaker);
        let waker = Waker::from(held.clone());
        {
            let mut waiting = pin!(idempotency.lease_lost());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(waker);
        Arc::strong_count(&held).to_string()
    };
    let layer = builder().build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    assert_eq!(text(answer(&service, charge("a")).await).await, "1");
}
