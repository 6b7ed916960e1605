//! The admin listener: `/metrics`, `/healthz` and `/readyz`. It must answer when nothing else does, so
//! it shares nothing with the service's own connections, and everything in it is bounded.

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, join};
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
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{bearer::bearer, settings::AdminToken, telemetry::Metrics};

/// The most connections at the same time; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// Time for a request's head. It is short because silent connections take the places of probes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a whole connection, which is one request: no client can occupy all of them for long.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// Time for the store to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a readiness is reused, so that probes cannot load the store.
const READY_FOR: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Ready, or why not. The reason is public: every client of the listener can read it.
pub type Readiness = Result<(), Cow<'static, str>>;

/// What a service knows of its readiness beside the store, which the admin listener checks itself.
pub trait ReadinessCheck: Send + Sync {
    /// What the service's own requests have shown lately. It costs nothing, so every probe checks it.
    fn observed(&self) -> Readiness;

    /// Checks what the service depends on. Probes within a second share the result.
    fn check(&self) -> BoxFuture<'_, Readiness>;
}

/// The admin listener while it runs.
#[derive(Debug)]
pub struct AdminListener {
    address: SocketAddr,
    admin: Arc<AdminState>,
    task: JoinHandle<()>,
}

impl AdminListener {
    /// Starts to answer on `listener`: from before the store is open until [`stop`](Self::stop), also while the
    /// service drains. `/metrics` requires `token`.
    ///
    /// # Errors
    ///
    /// When the address of `listener` cannot be read.
    pub fn start(
        listener: TcpListener,
        token: Option<AdminToken>,
        metrics: Metrics,
        draining: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let admin = Arc::new(AdminState::new(token, metrics, draining));
        let task = tokio::spawn(serve(listener, admin.clone()));
        Ok(Self { address, admin, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The store is open: from now on `/readyz` checks it, and `check`.
    pub fn store_opened(&self, engine: Engine, check: Box<dyn ReadinessCheck>) {
        self.admin.set_open(OpenService { engine, check });
    }

    /// Answers no more.
    pub fn stop(self) {
        self.task.abort();
    }
}

/// What the listener answers from.
struct AdminState {
    token: Option<AdminToken>,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
    /// Empty until the store is open.
    open: OnceLock<OpenService>,
    /// The last readiness that was checked, and when. Locked during the check, so that concurrent probes share it.
    checked: Mutex<Option<(Instant, Readiness)>>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// What readiness is checked with, once the store is open.
struct OpenService {
    engine: Engine,
    check: Box<dyn ReadinessCheck>,
}

type AdminResponse = Response<Full<Bytes>>;

/// Answers for as long as it is polled, also while the service drains: `/readyz` is then 503.
async fn serve(listener: TcpListener, admin: Arc<AdminState>) {
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
                // Mostly the process is out of file descriptors: without a pause this loop would spin.
                tracing::warn!("admin: cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, admin: Arc<AdminState>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.respond(&request).await) }
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

impl AdminState {
    fn new(token: Option<AdminToken>, metrics: Metrics, draining: watch::Receiver<bool>) -> Self {
        Self { token, metrics, draining, open: OnceLock::new(), checked: Mutex::new(None) }
    }

    fn set_open(&self, open: OpenService) {
        // A store is opened once.
        let _ = self.open.set(open);
    }

    async fn respond<B>(&self, request: &Request<B>) -> AdminResponse {
        let path = request.uri().path();
        if !["/metrics", "/healthz", "/readyz"].contains(&path) {
            let text = "not here; there are /metrics, /healthz and /readyz\n";
            return response(StatusCode::NOT_FOUND, TEXT, text);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            return with(refusal, header::ALLOW, "GET, HEAD");
        }
        match path {
            "/metrics" if !self.admits(request) => {
                let text = "send the admin token: Authorization: Bearer TOKEN\n";
                let refusal = response(StatusCode::UNAUTHORIZED, TEXT, text);
                with(refusal, header::WWW_AUTHENTICATE, "Bearer realm=\"semel\"")
            }
            "/metrics" => response(StatusCode::OK, PROMETHEUS, self.metrics.render()),
            "/readyz" => match self.ready().await {
                Ok(()) => response(StatusCode::OK, TEXT, "ready\n"),
                Err(why) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            },
            _ => response(StatusCode::OK, TEXT, "ok\n"),
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
        open.check.observed()?;
        let mut checked = self.checked.lock().await;
        match &*checked {
            Some((at, readiness)) if at.elapsed() < READY_FOR => readiness.clone(),
            _ => {
                let (store, service) = join(open.check_store(), open.check.check()).await;
                let readiness = store.and(service);
                *checked = Some((Instant::now(), readiness.clone()));
                readiness
            }
        }
    }
}

impl OpenService {
    /// Reads a record that does not exist: one lookup in an index, or one round trip to a server. The reason is
    /// public, the error goes to the log only.
    async fn check_store(&self) -> Readiness {
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

fn response(status: StatusCode, content: &'static str, text: impl Into<Bytes>) -> AdminResponse {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    with(with(response, header::CONTENT_TYPE, content), header::CACHE_CONTROL, "no-store")
}

fn with(mut response: AdminResponse, name: HeaderName, value: &'static str) -> AdminResponse {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

#[cfg(test)]
mod tests;
