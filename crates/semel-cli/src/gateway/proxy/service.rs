//! The service behind the layer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header::TRANSFER_ENCODING};
use http_body::Body;
use hyper::body::Incoming;
use semel::http::{HandlerVerdict, Idempotency, Problem, RequestBody};
use tower_service::Service;
use tracing::warn;

use super::{
    body::{ProxyBody, UpstreamBody},
    headers,
    pool::{Answered, Lost, Pool, Upstream},
    progress::Upload,
};
use crate::gateway::{arrival::Arrival, metrics::UpstreamError};

/// Sends every request on to the upstream that its [`Arrival`] names.
#[derive(Clone)]
pub(in crate::gateway) struct Proxy {
    pools: Arc<[Arc<Pool>]>,
    trust_forwarded: bool,
}

impl Proxy {
    pub(in crate::gateway) fn new(pools: Vec<Arc<Pool>>, trust_forwarded: bool) -> Self {
        Self { pools: pools.into(), trust_forwarded }
    }

    async fn forward(self, request: Request<RequestBody<Incoming>>) -> Response<ProxyBody> {
        let (mut parts, body) = request.into_parts();
        let arrival: Arrival = parts.extensions.remove().expect("the door puts it there");
        let pool = &self.pools[arrival.found.upstream];
        let context = parts.extensions.remove::<Idempotency>();
        let trust = self.trust_forwarded;
        headers::forward(&mut parts.headers, &arrival, &pool.upstream, context.as_ref(), trust);
        let body_is_framed = body.is_end_stream() || body.size_hint().exact().is_some();
        if !body_is_framed {
            // Said outright: for some methods hyper would take no length for no body.
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        parts.uri = target(&parts.uri, &pool.upstream);
        parts.version = Version::HTTP_11;
        let (body, progress) = Upload::new(body);
        match pool.send(Request::from_parts(parts, body), progress).await {
            Ok(answered) => answer(answered, pool),
            Err(lost) => lost.answer(&pool.upstream),
        }
    }
}

/// The path as the upstream knows it.
fn target(uri: &Uri, upstream: &Upstream) -> Uri {
    if upstream.base.is_empty() {
        return uri.clone();
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path == "*" { "/" } else { path };
    format!("{}{path}", upstream.base).parse().expect("a path after a path is a path")
}

fn answer(answered: Answered, pool: &Arc<Pool>) -> Response<ProxyBody> {
    let Answered { mut response, connection } = answered;
    // We asked for no other protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return failed(&pool.upstream, "it switched protocols unasked");
    }
    headers::end_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    response.map(|incoming| {
        let body = UpstreamBody::new(incoming, connection, pool.clone());
        ProxyBody::Upstream(Box::new(body))
    })
}

impl Lost {
    fn answer(self, upstream: &Upstream) -> Response<ProxyBody> {
        let name = upstream.name.as_str();
        match self {
            Self::Unreachable(error) => {
                warn!(upstream = name, %error, "upstream unreachable");
                upstream.errors.count(UpstreamError::Unreachable);
                own(&Problem::upstream_unreachable(), HandlerVerdict::NoEffect)
            }
            Self::Failed(error) => failed(upstream, &error),
            Self::Late => {
                warn!(upstream = name, "upstream did not answer in time");
                upstream.errors.count(UpstreamError::Timeout);
                own(&Problem::upstream_timeout(), HandlerVerdict::Indeterminate)
            }
        }
    }
}

fn failed(upstream: &Upstream, error: impl std::fmt::Display) -> Response<ProxyBody> {
    let name = upstream.name.as_str();
    warn!(upstream = name, %error, "upstream failed");
    upstream.errors.count(UpstreamError::Failed);
    own(&Problem::upstream_failed(), HandlerVerdict::Indeterminate)
}

fn own(problem: &Problem, verdict: HandlerVerdict) -> Response<ProxyBody> {
    let mut response = problem.response(Problem::BASE).map(ProxyBody::Own);
    response.extensions_mut().insert(verdict);
    response
}

impl Service<Request<RequestBody<Incoming>>> for Proxy {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Incoming>>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.forward(request).await) })
    }
}
