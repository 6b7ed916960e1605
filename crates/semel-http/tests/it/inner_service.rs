//! The inner service: its readiness, its errors, and an inner service that is a semel itself.

use std::{
    convert::Infallible,
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::{future::join, stream};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use semel_core::{Engine, ListQuery, MemoryStore, OnLostOwner, Store};
use semel_http::{Anonymous, IdempotencyLayer, IdempotencyService, RequestBody};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{
    harness::{
        HandlerGate, RunCounter, TIMEOUT, answer, builder, charge, counting, infallible,
        keyed_post, problem, sent, text, wait_until, without_backoff,
    },
    max_run::short_lived,
};

/// Limits concurrent calls with permits that `poll_ready` takes, like tower's own limit. `/slow` never ends.
struct Limited {
    permits: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    runs: RunCounter,
}

impl Limited {
    fn to(permits: usize) -> Self {
        let (permits, runs) = (Arc::new(Semaphore::new(permits)), RunCounter::default());
        Self { permits, permit: None, waiting: None, runs }
    }

    fn behind_the_layer(permits: usize) -> IdempotencyService<Self> {
        builder().build().unwrap().layer(Self::to(permits))
    }
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        let (permits, runs) = (self.permits.clone(), self.runs.clone());
        Self { permits, permit: None, waiting: None, runs }
    }
}

impl<B: Send + 'static> Service<Request<B>> for Limited {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.permit.is_none() {
            let permits = self.permits.clone();
            let waiting = self.waiting.get_or_insert_with(|| {
                Box::pin(async move { permits.acquire_owned().await.unwrap() })
            });
            self.permit = Some(ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let permit = self.permit.take().expect("it was ready");
        self.runs.count();
        Box::pin(async move {
            let _permit = permit;
            if request.uri().path() == "/slow" {
                pending::<()>().await;
            }
            Ok("done".into_response())
        })
    }
}

async fn is_answered(service: &IdempotencyService<Limited>, request: Request<Body>) -> bool {
    timeout(TIMEOUT, service.clone().oneshot(request)).await.is_ok()
}

#[tokio::test]
async fn a_waiting_duplicate_takes_no_permit_of_the_inner_service() {
    let service = Limited::behind_the_layer(2);
    let _running = sent(&service, keyed_post("/slow", "a", "x"));
    let _waiting = sent(&service, keyed_post("/slow", "a", "x"));
    assert!(is_answered(&service, keyed_post("/", "other", "x")).await);
}

#[tokio::test]
async fn a_slow_body_takes_no_permit_of_the_inner_service() {
    let service = Limited::behind_the_layer(1);
    let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let _stalled = sent(&service, keyed_post("/", "slow", stalled));
    assert!(is_answered(&service, keyed_post("/", "other", "x")).await);
}

#[tokio::test]
async fn a_replay_takes_no_permit_of_the_inner_service() {
    let service = Limited::behind_the_layer(1);
    assert!(is_answered(&service, keyed_post("/", "done", "x")).await);
    let _running = sent(&service, keyed_post("/slow", "a", "x"));
    assert!(is_answered(&service, keyed_post("/", "done", "x")).await);
}

/// Another request has taken the key over, so the first one must not start its handler.
#[tokio::test]
async fn a_request_that_lost_its_lease_before_the_service_was_ready_does_not_run() {
    let (store, inner) = (Arc::new(MemoryStore::new()), Limited::to(0));
    let engine = Engine::builder().store(store.clone()).build().unwrap();
    let layer = IdempotencyLayer::builder(engine).principal(Anonymous).policy(short_lived());
    let service = layer.build().unwrap().layer(inner.clone());
    let first = tokio::spawn(service.clone().oneshot(charge("a")));
    wait_until("another has taken over", async || {
        tokio::spawn(service.clone().oneshot(charge("a")));
        let records = store.list(&ListQuery::default()).await.unwrap();
        records.first().is_some_and(|record| record.attempts > 1)
    })
    .await;
    inner.permits.add_permits(1);
    wait_until("it is done", async || {
        service.clone().oneshot(charge("a")).await.unwrap().status() == StatusCode::OK
    })
    .await;
    first.await.unwrap().unwrap();
    assert_eq!(inner.runs.total(), 1);
}

/// An error of the inner service. It cannot be cloned for other callers.
#[derive(Debug, PartialEq)]
struct InnerError(&'static str);

#[tokio::test]
async fn the_first_caller_gets_the_error_of_the_inner_service_and_waiters_get_attempt_failed() {
    let (gate, runs) = (HandlerGate::closed(), RunCounter::default());
    let (opened, counted) = (gate.clone(), runs.clone());
    let inner = service_fn(move |_: Request<RequestBody<Body>>| {
        let (opened, run) = (opened.clone(), counted.count());
        async move {
            opened.wait_open().await;
            if run == 1 {
                Err(InnerError("no route"))
            } else {
                Ok(Response::new(Body::from("done")))
            }
        }
    });
    let service = builder().policy(without_backoff()).build().unwrap().layer(inner);
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    let (first, second) = join(first, second).await;
    assert_eq!(first.unwrap_err(), InnerError("no route"));
    let second = second.unwrap();
    assert_eq!(second.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(second.headers()["semel-status"], "attempt-failed");
    assert_eq!(runs.total(), 1, "the waiter did not run it again");
    let again = service.oneshot(charge("a")).await.unwrap();
    assert_eq!(again.into_body().collect().await.unwrap().to_bytes(), "done");
    assert_eq!(runs.total(), 2);
}

/// The point at which a service fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FailurePoint {
    Ready,
    Call,
}

/// Fails once, and answers from then on.
#[derive(Clone, Debug)]
struct FailsOnce {
    at: FailurePoint,
    tries: RunCounter,
}

impl FailsOnce {
    fn behind_the_layer(at: FailurePoint) -> IdempotencyService<Self> {
        let layer = builder().policy(without_backoff()).build().unwrap();
        layer.layer(Self { at, tries: RunCounter::default() })
    }

    fn gets_past(&self, step: FailurePoint) -> Result<(), InnerError> {
        if step == self.at && self.tries.count() == 1 { Err(InnerError("once")) } else { Ok(()) }
    }
}

impl<B> Service<Request<B>> for FailsOnce {
    type Response = Response;
    type Error = InnerError;
    type Future = std::future::Ready<Result<Response, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        Poll::Ready(self.gets_past(FailurePoint::Ready))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        std::future::ready(self.gets_past(FailurePoint::Call).map(|()| "done".into_response()))
    }
}

/// The problem for another body under the same key, after the first request got an error.
async fn problem_for_another_body(service: &IdempotencyService<FailsOnce>) -> Option<String> {
    service.clone().oneshot(keyed_post("/", "a", "5 EUR")).await.unwrap_err();
    let other = service.clone().oneshot(keyed_post("/", "a", "6 EUR")).await.unwrap();
    other.headers().get("semel-status").map(|name| name.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_error_before_the_call_means_no_effect() {
    let service = FailsOnce::behind_the_layer(FailurePoint::Ready);
    assert_eq!(problem_for_another_body(&service).await, None);
}

#[tokio::test]
async fn an_error_of_the_call_may_have_had_an_effect() {
    let service = FailsOnce::behind_the_layer(FailurePoint::Call);
    assert_eq!(problem_for_another_body(&service).await.as_deref(), Some("fingerprint-mismatch"));
    let same = service.oneshot(keyed_post("/", "a", "5 EUR")).await.unwrap();
    assert_eq!(same.status(), StatusCode::OK);
    assert!(!same.headers().contains_key("idempotent-replayed"));
}

/// `attempt-failed` advises a retry, but on a hold route only an operator may decide that.
#[tokio::test]
async fn an_inner_attempt_that_failed_is_not_the_final_answer_of_a_hold_route() {
    let runs = RunCounter::default();
    let handler = move || async move {
        assert!(runs.count() > 1, "the first one fails");
        "done"
    };
    let hold = without_backoff().on_lost_owner(OnLostOwner::Hold);
    let service = Router::new()
        .route("/orders/{id}", post(handler))
        .layer(builder().namespace("inner").policy(without_backoff()).build().unwrap())
        .layer(builder().policy(hold).build().unwrap());
    for _ in 0..2 {
        let response = answer(&service, charge("a")).await;
        assert_eq!(problem(&response), Some("outcome-unknown"));
        assert_eq!(response.headers()["stripe-should-retry"], "false");
    }
}

/// The run may have had its effect.
#[tokio::test]
async fn an_unknown_outcome_of_an_inner_semel_is_held_on_a_hold_route() {
    let runs = RunCounter::default();
    let counted = runs.clone();
    let handler = move || async move {
        counted.count();
        (StatusCode::CONFLICT, [("semel-status", "outcome-unknown")], "unknown")
    };
    let hold = without_backoff().on_lost_owner(OnLostOwner::Hold);
    let layer = builder().policy(hold).build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    for _ in 0..2 {
        assert_eq!(problem(&answer(&service, charge("a")).await), Some("outcome-unknown"));
    }
    assert_eq!(runs.total(), 1);
}

/// Without the marker, the empty body would look like the whole answer.
#[tokio::test]
async fn an_answer_that_an_inner_semel_replays_without_its_body_keeps_the_marker() {
    let handler = || async { ([("idempotency-body", "omitted")], "") };
    let layer = builder().build().unwrap();
    let service = Router::new().route("/orders/{id}", post(handler)).layer(layer);
    for _ in 0..2 {
        let response = answer(&service, charge("a")).await;
        assert_eq!(response.headers()["idempotency-body"], "omitted");
    }
}

/// On HTTP/1, a request with a declared length has no trailers: a proxy would lose them.
#[tokio::test]
async fn a_request_with_trailers_declares_no_length() {
    let inner = service_fn(|request: Request<RequestBody<Body>>| async move {
        let length = request.body().size_hint().exact();
        infallible(format!("{length:?}").into_response())
    });
    let service = builder().build().unwrap().layer(inner);
    let trailers = [("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect();
    let frames =
        [infallible(Frame::data(Bytes::from_static(b"5 EUR"))), Ok(Frame::trailers(trailers))];
    let trailed = Body::new(StreamBody::new(stream::iter(frames)));
    for (key, body, length) in [("a", trailed, "None"), ("b", "5 EUR".into(), "Some(5)")] {
        let response = service.clone().oneshot(keyed_post("/", key, body)).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), length);
    }
}

/// No problem of semel has a 2xx status, so the header comes from the handler, and its effect happened.
#[tokio::test]
async fn semel_status_on_a_success_does_not_free_the_key() {
    let runs = RunCounter::default();
    let service = counting(&runs)
        .layer(axum::middleware::map_response(|response: Response| async move {
            ([("semel-status", "in-progress")], response)
        }))
        .layer(builder().build().unwrap());
    for _ in 0..2 {
        assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
    }
}
