//! The service behind the layer: its places, its errors, and a semel in its stead.

use std::{
    convert::Infallible,
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
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
use http_body_util::BodyExt;
use semel_core::OnLostOwner;
use semel_http::{IdempotencyService, RequestBody};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::scene::{
    Gate, PATIENCE, Runs, answer, ask, builder, charge, counting, eager, problem, sent, text,
};

/// Has places for so many calls, taken in `poll_ready` as tower's own limit does. `/slow` never ends.
struct Limited {
    places: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
}

impl Limited {
    fn behind_the_layer(places: usize) -> IdempotencyService<Self> {
        let places = Arc::new(Semaphore::new(places));
        builder().build().unwrap().layer(Self { places, place: None, waiting: None })
    }
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        Self { places: self.places.clone(), place: None, waiting: None }
    }
}

impl<B: Send + 'static> Service<Request<B>> for Limited {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.place.is_none() {
            let places = self.places.clone();
            let waiting = self.waiting.get_or_insert_with(|| {
                Box::pin(async move { places.acquire_owned().await.unwrap() })
            });
            self.place = Some(std::task::ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let place = self.place.take().expect("it was ready");
        Box::pin(async move {
            let _place = place;
            if request.uri().path() == "/slow" {
                pending::<()>().await;
            }
            Ok("done".into_response())
        })
    }
}

async fn is_answered(service: &IdempotencyService<Limited>, request: Request<Body>) -> bool {
    timeout(PATIENCE, service.clone().oneshot(request)).await.is_ok()
}

#[tokio::test]
async fn who_only_waits_takes_no_place_of_the_inner_service() {
    let service = Limited::behind_the_layer(2);
    let _running = sent(&service, ask("/slow", "a", "x"));
    let _waiting = sent(&service, ask("/slow", "a", "x"));
    assert!(is_answered(&service, ask("/", "other", "x")).await);
}

#[tokio::test]
async fn a_slow_body_takes_no_place_of_the_inner_service() {
    let service = Limited::behind_the_layer(1);
    let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let _stalled = sent(&service, ask("/", "slow", stalled));
    assert!(is_answered(&service, ask("/", "other", "x")).await);
}

#[tokio::test]
async fn a_replay_takes_no_place_of_the_inner_service() {
    let service = Limited::behind_the_layer(1);
    assert!(is_answered(&service, ask("/", "done", "x")).await);
    let _running = sent(&service, ask("/slow", "a", "x"));
    assert!(is_answered(&service, ask("/", "done", "x")).await);
}

/// An error of an inner service: no response, and nothing that could be cloned for others.
#[derive(Debug, PartialEq)]
struct Refused(&'static str);

#[tokio::test]
async fn an_error_of_the_inner_service_is_its_callers_and_a_failed_attempt_for_those_who_waited() {
    let (gate, runs) = (Gate::closed(), Runs::default());
    let (opened, counted) = (gate.clone(), runs.clone());
    let inner = service_fn(move |_: Request<RequestBody<Body>>| {
        let (opened, run) = (opened.clone(), counted.count());
        async move {
            opened.passed().await;
            if run == 1 { Err(Refused("no route")) } else { Ok(Response::new(Body::from("done"))) }
        }
    });
    let service = builder().policy(eager()).build().unwrap().layer(inner);
    let (first, second) = (sent(&service, charge("a")), sent(&service, charge("a")));
    gate.open();
    let (first, second) = join(first, second).await;
    assert_eq!(first.unwrap_err(), Refused("no route"));
    let second = second.unwrap();
    assert_eq!(second.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(second.headers()["semel-status"], "attempt-failed");
    assert_eq!(runs.so_far(), 1, "whoever waited did not run it again");
    let again = service.oneshot(charge("a")).await.unwrap();
    assert_eq!(again.into_body().collect().await.unwrap().to_bytes(), "done");
    assert_eq!(runs.so_far(), 2);
}

/// "Send the same request again" is advice, not an outcome; and on a hold route it is an operator's to give.
#[tokio::test]
async fn an_inner_attempt_that_failed_is_not_the_final_answer_of_a_hold_route() {
    let runs = Runs::default();
    let handler = move || async move {
        assert!(runs.count() > 1, "the first one fails");
        "done"
    };
    let hold = eager().on_lost_owner(OnLostOwner::Hold);
    let service = Router::new()
        .route("/orders/{id}", post(handler))
        .layer(builder().namespace("inner").policy(eager()).build().unwrap())
        .layer(builder().policy(hold).build().unwrap());
    let first = answer(&service, charge("a")).await;
    assert_eq!(problem(&first), Some("attempt-failed"));
    assert_eq!(first.headers()["stripe-should-retry"], "true");
    assert_eq!(problem(&answer(&service, charge("a")).await), Some("outcome-unknown"));
}

/// Our own answers are never 2xx: such a header is the handler's own, and its effect is there.
#[tokio::test]
async fn semel_status_on_a_success_does_not_free_the_key() {
    let runs = Runs::default();
    let service = counting(&runs)
        .layer(axum::middleware::map_response(|said: Response| async move {
            ([("semel-status", "in-progress")], said)
        }))
        .layer(builder().build().unwrap());
    for _ in 0..2 {
        assert_eq!(text(answer(&service, charge("a")).await).await, "run 1");
    }
}
