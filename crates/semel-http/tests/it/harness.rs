//! Helpers of all tests here: a layer over a memory store, handlers that are counted and held back, requests that
//! are sent and not waited for.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::Request,
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use semel_core::{Engine, MemoryStore};
use semel_http::{
    Anonymous, IdempotencyLayer, IdempotencyLayerBuilder, RoutePolicy, WithPrincipal,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tower::{Service, ServiceExt};

pub(crate) type LayerBuilder = IdempotencyLayerBuilder<WithPrincipal>;

/// A wait that takes longer has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn engine() -> Engine {
    Engine::builder().store(MemoryStore::new()).build().unwrap()
}

pub(crate) fn builder() -> LayerBuilder {
    IdempotencyLayer::builder(engine()).principal(Anonymous)
}

/// The default policy, but a failed attempt may be retried at once.
pub(crate) fn without_backoff() -> RoutePolicy {
    RoutePolicy::api().with(|policy| policy.backoff(Duration::ZERO))
}

pub(crate) fn keyed_post(uri: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(uri).header("idempotency-key", key).body(body.into()).unwrap()
}

/// The request that most tests make.
pub(crate) fn charge(key: &str) -> Request<Body> {
    keyed_post("/orders/7", key, "5 EUR")
}

/// The answer to a request.
pub(crate) async fn answer(service: &Router, request: Request<Body>) -> Response {
    service.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The name of the problem that an answer is, if it is one.
pub(crate) fn problem(response: &Response) -> Option<&str> {
    response.headers().get("semel-status").map(|name| name.to_str().unwrap())
}

/// Counts runs of a handler. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCounter(Arc<AtomicU32>);

impl RunCounter {
    /// Counts one run and returns its number, from 1.
    pub(crate) fn count(&self) -> u32 {
        self.0.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn total(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// A service of one route, whose handler answers with the number of its run.
pub(crate) fn counting(runs: &RunCounter) -> Router {
    let runs = runs.clone();
    let handler = move || async move { format!("run {}", runs.count()) };
    Router::new().route("/orders/{id}", post(handler))
}

/// Holds handlers back until it is opened.
#[derive(Clone, Debug)]
pub(crate) struct HandlerGate(watch::Sender<bool>);

impl HandlerGate {
    pub(crate) fn closed() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn wait_open(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

/// A service of one route, whose handler gives `answer` once the gate is open.
pub(crate) fn gated(
    gate: &HandlerGate,
    runs: &RunCounter,
    answer: impl IntoResponse + Clone + Send + Sync + 'static,
) -> Router {
    let (gate, runs) = (gate.clone(), runs.clone());
    let handler = move || async move {
        runs.count();
        gate.wait_open().await;
        answer
    };
    Router::new().route("/orders/{id}", post(handler))
}

/// A request that was sent and is pending: its handler runs, or it waits for the run of another request.
pub(crate) type Sent<S> = Pin<Box<tower::util::Oneshot<S, Request<Body>>>>;

pub(crate) fn sent<S>(service: &S, request: Request<Body>) -> Sent<S>
where
    S: Service<Request<Body>, Error: std::fmt::Debug> + Clone,
{
    let mut sent = Box::pin(service.clone().oneshot(request));
    assert!((&mut sent).now_or_never().is_none(), "the request was answered at once");
    sent
}

/// Waits until `done` returns true.
pub(crate) async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    while !done().await {
        assert!(started_at.elapsed() < TIMEOUT, "timed out: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Counts the pieces that are in memory, and their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LivePieces(Arc<(AtomicIsize, AtomicIsize)>);

impl LivePieces {
    /// Bytes that are counted until the last reference to them is dropped.
    pub(crate) fn piece(&self, length: usize) -> Bytes {
        self.add(1, length.cast_signed());
        Bytes::from_owner(CountedPiece(vec![b'x'; length], self.clone()))
    }

    pub(crate) fn pieces(&self) -> isize {
        self.0.0.load(SeqCst)
    }

    pub(crate) fn bytes(&self) -> isize {
        self.0.1.load(SeqCst)
    }

    fn add(&self, pieces: isize, bytes: isize) {
        self.0.0.fetch_add(pieces, SeqCst);
        self.0.1.fetch_add(bytes, SeqCst);
    }
}

struct CountedPiece(Vec<u8>, LivePieces);

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for CountedPiece {
    fn drop(&mut self) {
        self.1.add(-1, -self.0.len().cast_signed());
    }
}

/// A value as a `Result`, for bodies and services that cannot fail.
pub(crate) fn infallible<T>(value: T) -> Result<T, Infallible> {
    Ok(value)
}
