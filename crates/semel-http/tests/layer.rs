//! What the layer promises beside the kit: hooks, extensions, modes, errors.
#![cfg(feature = "axum")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::BodyExt;
use semel_core::{Engine, MemoryStore, Policy};
use semel_http::{
    Anonymous, Authorization, HandlerVerdict, Idempotency, IdempotencyLayer,
    IdempotencyLayerBuilder, Mode, Modes, RoutePolicy, WithPrincipal,
};
use tower::ServiceExt;

type Builder = IdempotencyLayerBuilder<WithPrincipal>;

fn engine() -> Engine {
    let policy = Policy::api().backoff(std::time::Duration::from_millis(50));
    Engine::builder().store(MemoryStore::new()).policy(policy).build().unwrap()
}

fn builder() -> Builder {
    IdempotencyLayer::builder(engine()).principal(Anonymous)
}

/// Counts its runs and answers the number.
fn counting(runs: &Arc<AtomicU32>) -> Router {
    let runs = runs.clone();
    Router::new().route(
        "/orders/{id}",
        post(move || async move { format!("run {}", runs.fetch_add(1, SeqCst) + 1) }),
    )
}

fn charge(key: &str) -> Request<Body> {
    Request::post("/orders/7").header("idempotency-key", key).body("5 EUR".into()).unwrap()
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_retry_is_answered_with_the_first_answer() {
    let runs = Arc::default();
    let service = counting(&runs).layer(builder().build().unwrap());
    let first = service.clone().oneshot(charge("a")).await.unwrap();
    assert_eq!(first.headers()["idempotency-key"], "a");
    assert!(!first.headers().contains_key("idempotent-replayed"));
    let retry = service.oneshot(charge("a")).await.unwrap();
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!((text(first).await, text(retry).await), ("run 1".into(), "run 1".into()));
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn nobody_is_refused_when_a_key_comes_without_a_principal() {
    let runs = Arc::default();
    let layer = IdempotencyLayer::builder(engine()).principal(Authorization).build().unwrap();
    let answer = counting(&runs).layer(layer).oneshot(charge("a")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers()["semel-status"], "principal-missing");
    assert_eq!(runs.load(SeqCst), 0);
}

#[tokio::test]
async fn a_replay_is_shown_only_to_whoever_may_still_see_it() {
    let runs = Arc::default();
    let allowed =
        builder().authorize_replay(|parts| async move { !parts.headers.contains_key("x-revoked") });
    let service = counting(&runs).layer(allowed.build().unwrap());
    service.clone().oneshot(charge("a")).await.unwrap();
    let mut revoked = charge("a");
    revoked.headers_mut().insert("x-revoked", "1".parse().unwrap());
    let answer = service.clone().oneshot(revoked).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(service.oneshot(charge("a")).await.unwrap().status(), StatusCode::OK);
    assert_eq!(runs.load(SeqCst), 1);
}

async fn runs_with_verdict(status: StatusCode, verdict: HandlerVerdict) -> u32 {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || async move {
        counted.fetch_add(1, SeqCst);
        (status, Extension(verdict), "said").into_response()
    };
    let service =
        Router::new().route("/orders/{id}", post(handler)).layer(builder().build().unwrap());
    for _ in 0..2 {
        let answer = service.clone().oneshot(charge("a")).await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(text(answer).await, "said");
    }
    runs.load(SeqCst)
}

#[tokio::test]
async fn the_handlers_verdict_goes_before_the_status() {
    assert_eq!(runs_with_verdict(StatusCode::BAD_GATEWAY, HandlerVerdict::Final).await, 1);
    assert_eq!(runs_with_verdict(StatusCode::OK, HandlerVerdict::NoEffect).await, 2);
    assert_eq!(runs_with_verdict(StatusCode::OK, HandlerVerdict::Retry).await, 2);
}

#[tokio::test]
async fn an_indeterminate_answer_rests_before_it_runs_again() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || async move {
        counted.fetch_add(1, SeqCst);
        (Extension(HandlerVerdict::Indeterminate), "said")
    };
    let layer = builder()
        .policy(
            RoutePolicy::api()
                .wait(std::time::Duration::ZERO)
                .with(|policy| policy.backoff(std::time::Duration::from_secs(600))),
        )
        .build()
        .unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    let first = service.clone().oneshot(charge("a")).await.unwrap();
    assert_eq!(text(first).await, "said");
    let answer = service.oneshot(charge("a")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(answer.headers()["semel-status"], "in-progress");
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn a_handler_is_told_its_attempt_and_its_downstream_key() {
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
    let told = text(service.clone().oneshot(charge("a")).await.unwrap()).await;
    assert!(told.starts_with("1 1 ") && told.len() == 4 + 36, "{told}");
    let other = text(service.oneshot(charge("b")).await.unwrap()).await;
    assert_ne!(told, other);
}

#[tokio::test]
async fn a_request_without_a_key_has_no_context_and_says_so() {
    let strict = |_: Idempotency| async { "never" };
    let lax = |found: Option<Idempotency>| async move { format!("{}", found.is_some()) };
    let layer = builder().build().unwrap();
    let service =
        Router::new().route("/strict", post(strict)).route("/lax", post(lax)).layer(layer);
    let ask = |uri| Request::post(uri).body(Body::empty()).unwrap();
    let strict = service.clone().oneshot(ask("/strict")).await.unwrap();
    assert_eq!(strict.status(), StatusCode::BAD_REQUEST);
    assert_eq!(strict.headers()["semel-status"], "key-missing");
    assert_eq!(text(service.oneshot(ask("/lax")).await.unwrap()).await, "false");
}

#[tokio::test]
async fn modes_change_while_the_service_runs() {
    let runs = Arc::default();
    let modes = Modes::new();
    let service = counting(&runs).layer(builder().modes(modes.clone()).build().unwrap());
    modes.set("POST /orders/{id}", Mode::Off).unwrap();
    for _ in 0..2 {
        let answer = service.clone().oneshot(charge("a")).await.unwrap();
        assert!(!answer.headers().contains_key("idempotency-key"));
    }
    assert_eq!(runs.load(SeqCst), 2);
    modes.clear("POST /orders/{id}");
    for _ in 0..2 {
        service.clone().oneshot(charge("a")).await.unwrap();
    }
    assert_eq!(runs.load(SeqCst), 3);
}
