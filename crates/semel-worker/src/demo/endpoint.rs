//! The demo's handler: an HTTP endpoint that is busy once, and refuses one order.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use semel::http::header::IDEMPOTENCY_KEY;
use tokio::{net::TcpListener, task::AbortHandle};

/// The endpoint while it runs.
#[derive(Debug)]
pub(super) struct DemoEndpoint {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<DemoRequest>>>,
    task: AbortHandle,
}

/// A request that the endpoint got, and its answer.
#[derive(Clone, Debug)]
pub(super) struct DemoRequest {
    /// The header `ce-id`.
    pub(super) id: String,
    /// The header `Idempotency-Key`.
    pub(super) key: String,
    /// The header `Semel-Attempt`.
    pub(super) attempt: String,
    pub(super) answer: StatusCode,
}

impl DemoEndpoint {
    /// The order whose first attempt is refused for a moment.
    pub(super) const BUSY: &str = "order-2";
    /// The order that is always refused.
    pub(super) const WRONG: &str = "order-3";

    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let task = tokio::spawn(serve(listener, requests.clone())).abort_handle();
        Ok(Self { address, requests, task })
    }

    /// All requests, in order.
    pub(super) fn requests(&self) -> Vec<DemoRequest> {
        self.requests.lock().clone()
    }
}

impl Drop for DemoEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, requests: Arc<Mutex<Vec<DemoRequest>>>) {
    // Ends with the demo: a listener on loopback has no other reason to fail.
    while let Ok((stream, _)) = listener.accept().await {
        let requests = requests.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(&requests, request.headers());
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async { drop(connection.await) });
    }
}

fn answer(requests: &Mutex<Vec<DemoRequest>>, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (id, attempt) = (header("ce-id"), header("semel-attempt"));
    let answer = match (id.as_str(), attempt.as_str()) {
        (DemoEndpoint::BUSY, "1") => StatusCode::SERVICE_UNAVAILABLE,
        (DemoEndpoint::WRONG, _) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    requests.lock().push(DemoRequest {
        id,
        key: header(IDEMPOTENCY_KEY.as_str()),
        attempt,
        answer,
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = answer;
    if answer == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
