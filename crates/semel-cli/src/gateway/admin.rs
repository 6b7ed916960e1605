//! The admin listener: `/metrics`, `/healthz` and `/readyz`. It must answer when nothing else does, so
//! it shares nothing with the gateway's own connections and everything in it is bounded.

use std::{
    borrow::Cow,
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::join;
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

use super::{door::Door, health::StoreHealth, principal::bearer, proxy::Pool, reach};
use crate::{
    settings::{self, Token},
    telemetry::Metrics,
};

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
pub(crate) struct Admin {
    token: Option<Token>,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
    /// True where readiness needs every upstream.
    needs_upstreams: bool,
    /// Empty until the store is open.
    open: OnceLock<Open>,
    /// When they were asked last, and what they said. Locked while they are asked: probes share an answer.
    asked: Mutex<Option<(Instant, Readiness)>>,
}

/// What is asked whether the gateway is ready.
struct Open {
    engine: Engine,
    health: StoreHealth,
    /// Those that readiness needs.
    upstreams: Vec<Arc<Pool>>,
}

/// Ready, or why not.
type Readiness = Result<(), Cow<'static, str>>;
type Answer = Response<Full<Bytes>>;

/// Answers for as long as it is polled, also while the gateway drains: `/readyz` is then 503.
pub(crate) async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!("admin on http://{address}");
    }
    let free = Arc::new(Semaphore::new(CONNECTIONS));
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
        settings: &settings::Admin,
        metrics: Metrics,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self {
            token: settings.token.clone(),
            metrics,
            draining,
            needs_upstreams: settings.ready_needs_upstreams,
            open: OnceLock::new(),
            asked: Mutex::new(None),
        }
    }

    /// The store is open: from now on it is asked whether the gateway is ready.
    pub(super) fn is_open(&self, engine: Engine, door: &Door) {
        let upstreams = if self.needs_upstreams { door.proxy.pools().to_vec() } else { Vec::new() };
        self.answer_from(Open { engine, health: door.health.clone(), upstreams });
    }

    fn answer_from(&self, open: Open) {
        // A store is opened once.
        let _ = self.open.set(open);
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
            return Err("shutting down".into());
        }
        let Some(open) = self.open.get() else {
            return Err("the store is being opened".into());
        };
        if !open.health.is_well() {
            return Err("requests do not find the store".into());
        }
        let mut asked = self.asked.lock().await;
        match &*asked {
            Some((at, readiness)) if at.elapsed() < READY_FOR => readiness.clone(),
            _ => {
                let (store, upstreams) = join(open.ask_store(), open.ask_upstreams()).await;
                let readiness = store.and(upstreams);
                *asked = Some((Instant::now(), readiness.clone()));
                readiness
            }
        }
    }
}

impl Open {
    async fn ask_upstreams(&self) -> Readiness {
        match reach::first_unreachable(&self.upstreams).await {
            None => Ok(()),
            Some(pool) => Err(format!("upstream {} cannot be reached", pool.name()).into()),
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
                Err("the store answers with an error".into())
            }
            Err(_) => {
                tracing::warn!("not ready: the store does not answer within {STORE_TIMEOUT:?}");
                Err("the store does not answer".into())
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
