//! The admin listener: `/metrics`, `/healthz` and `/readyz`. It must answer when nothing else does, so
//! it shares nothing with the gateway's own connections and everything in it is bounded.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use semel::{Engine, KeyHash};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore, watch},
    time::{sleep, timeout},
};

use super::{health::StoreHealth, principal::bearer};
use crate::{settings::Token, telemetry::Metrics};

/// Connections at once; more of them wait to be accepted.
const CONNECTIONS: usize = 256;
/// Time for a request's head. Short: connections that say nothing take the places of probes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a whole connection, which is one request: nobody can sit on all of them.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// Size of a request's head.
const HEAD_BYTES: usize = 16 * 1024;
/// Time for the store to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long its answer counts, so that probes cannot load it.
const READY_FOR: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the listener answers from.
#[derive(Debug)]
pub(crate) struct Admin {
    token: Option<Token>,
    metrics: Metrics,
    engine: Engine,
    health: StoreHealth,
    draining: watch::Receiver<bool>,
    /// When the store was asked last, and what it said. Locked while it is asked: probes share an answer.
    asked: Mutex<Option<(Instant, Readiness)>>,
}

/// Ready, or why not.
type Readiness = Result<(), &'static str>;
type Answer = Response<Full<Bytes>>;

/// Answers for as long as it is polled, also while the gateway drains: `/readyz` is then 503.
pub(crate) async fn serve(listener: TcpListener, admin: Admin) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!("admin on http://{address}");
    }
    let (admin, free) = (Arc::new(admin), Arc::new(Semaphore::new(CONNECTIONS)));
    while let Ok(permit) = free.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, admin.clone());
                tokio::spawn(async move {
                    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of files, mostly: without a pause this would spin.
                tracing::warn!("admin: cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.answer(&request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("admin: connection failed: {error}");
    }
}

impl Admin {
    pub(crate) fn new(
        token: Option<Token>,
        metrics: Metrics,
        engine: Engine,
        health: StoreHealth,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self { token, metrics, engine, health, draining, asked: Mutex::new(None) }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Answer {
        let path = request.uri().path();
        if !["/metrics", "/healthz", "/readyz"].contains(&path) {
            let text = "not here; there are /metrics, /healthz and /readyz\n";
            return answer(StatusCode::NOT_FOUND, TEXT, text);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let refusal = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            return with(refusal, header::ALLOW, "GET, HEAD");
        }
        match path {
            "/metrics" if !self.admits(request) => {
                let text = "send the admin token: Authorization: Bearer TOKEN\n";
                let refusal = answer(StatusCode::UNAUTHORIZED, TEXT, text);
                with(refusal, header::WWW_AUTHENTICATE, "Bearer realm=\"semel\"")
            }
            "/metrics" => answer(StatusCode::OK, PROMETHEUS, self.metrics.render()),
            "/readyz" => match self.ready().await {
                Ok(()) => answer(StatusCode::OK, TEXT, "ready\n"),
                Err(why) => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            },
            _ => answer(StatusCode::OK, TEXT, "ok\n"),
        }
    }

    fn admits<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        bearer(request.headers()).is_ok_and(|shown| token.is(shown.as_bytes()))
    }

    async fn ready(&self) -> Readiness {
        if *self.draining.borrow() {
            return Err("shutting down");
        }
        if !self.health.is_well() {
            return Err("requests do not find the store");
        }
        let mut asked = self.asked.lock().await;
        match *asked {
            Some((at, readiness)) if at.elapsed() < READY_FOR => readiness,
            _ => {
                let readiness = self.ask_store().await;
                *asked = Some((Instant::now(), readiness));
                readiness
            }
        }
    }

    /// Reads a record that does not exist: one look at an index, and of a remote store one round trip.
    /// The reason is for everybody to see, the error only for the log.
    async fn ask_store(&self) -> Readiness {
        let absent = KeyHash::from_bytes([0; 32]);
        match timeout(STORE_TIMEOUT, self.engine.store().get(&absent)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!("not ready: {error}");
                Err("the store answers with an error")
            }
            Err(_) => {
                tracing::warn!("not ready: the store does not answer within {STORE_TIMEOUT:?}");
                Err("the store does not answer")
            }
        }
    }
}

fn answer(status: StatusCode, content: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    with(with(answer, header::CONTENT_TYPE, content), header::CACHE_CONTROL, "no-store")
}

fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

#[cfg(test)]
mod tests;
