//! The service behind the layer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body;
use hyper::body::Incoming;
use semel::http::{HandlerVerdict, Idempotency, Problem, RequestBody};
use tower_service::Service;
use tracing::warn;

use super::{
    body::{ProxiedBody, ProxyBody},
    headers::{self, HeaderRules},
    pool::{ConnectionPool, ProxyUpstream, UpstreamFailure, UpstreamResponse},
    upload::Upload,
};
use crate::{checked_request::CheckedRequest, metrics::UpstreamError};

/// Sends every request on to the upstream that its [`CheckedRequest`] names.
#[derive(Clone)]
pub(crate) struct ReverseProxy {
    pools: Arc<[Arc<ConnectionPool>]>,
    rules: Arc<HeaderRules>,
}

impl ReverseProxy {
    pub(crate) fn new(pools: Vec<Arc<ConnectionPool>>, rules: HeaderRules) -> Self {
        Self { pools: pools.into(), rules: rules.into() }
    }

    /// All upstreams.
    pub(crate) fn pools(&self) -> Arc<[Arc<ConnectionPool>]> {
        self.pools.clone()
    }

    /// Waits for requests that go on beside their answers.
    pub(crate) async fn finished(&self) {
        for pool in &*self.pools {
            pool.finished().await;
        }
    }

    async fn forward(self, request: Request<RequestBody<Incoming>>) -> Response<ProxyBody> {
        let (mut parts, body) = request.into_parts();
        let arrival: CheckedRequest = parts.extensions.remove().expect("the door puts it there");
        let pool = &self.pools[arrival.found.upstream];
        let context = parts.extensions.remove::<Idempotency>();
        let (upstream, context) = (&pool.upstream, context.as_ref());
        headers::forward(&mut parts.headers, &arrival, upstream, context, &self.rules);
        let body_is_framed = body.is_end_stream() || body.size_hint().exact().is_some();
        if !body_is_framed {
            // Said outright: for some methods hyper would take no length for no body.
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let Some(target) = target(&parts.uri, &pool.upstream) else {
            return own(&Problem::target_invalid().detail(TOO_LONG), HandlerVerdict::NoEffect);
        };
        parts.uri = target;
        parts.version = Version::HTTP_11;
        let (body, progress) = Upload::new(body);
        match pool.send(Request::from_parts(parts, body), progress).await {
            Ok(answered) => answer(answered, pool),
            Err(lost) => lost.answer(&pool.upstream),
        }
    }
}

const TOO_LONG: &str =
    "nothing ran; the path is too long for the upstream's own to stand before it";

/// The path as the upstream knows it.
fn target(uri: &Uri, upstream: &ProxyUpstream) -> Option<Uri> {
    if upstream.base.is_empty() {
        return Some(uri.clone());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path == "*" { "/" } else { path };
    format!("{}{path}", upstream.base).parse().ok()
}

fn answer(mut answered: UpstreamResponse, pool: &Arc<ConnectionPool>) -> Response<ProxyBody> {
    let response = &mut answered.response;
    // We asked for no other protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return failed(&pool.upstream, "it switched protocols unasked");
    }
    if !is_framed_once(response.headers()) {
        return failed(&pool.upstream, "two readers could see its answer end in two places");
    }
    headers::end_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    ProxiedBody::new(answered, pool.clone()).map(|body| ProxyBody::Upstream(Box::new(body)))
}

/// Where an answer ends is said in one way, and that once. hyper takes what it likes of several, and would
/// pass the others on.
fn is_framed_once(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (None, None) => true,
        (None, Some(length)) => {
            lengths.next().is_none() && length.as_bytes().iter().all(u8::is_ascii_digit)
        }
        (Some(coding), None) => {
            codings.next().is_none() && coding.as_bytes().eq_ignore_ascii_case(b"chunked")
        }
        (Some(_), Some(_)) => false,
    }
}

impl UpstreamFailure {
    fn answer(self, upstream: &ProxyUpstream) -> Response<ProxyBody> {
        let name = upstream.name.as_str();
        match self {
            Self::Unreachable(error) => {
                warn!(upstream = name, %error, "upstream unreachable");
                upstream.errors.count(UpstreamError::Unreachable);
                own(&Problem::upstream_unreachable(), HandlerVerdict::NoEffect)
            }
            Self::Failed(error) => failed(upstream, &error),
            Self::HeadTooLarge => {
                let error = "the head of its answer is too large";
                warn!(upstream = name, error, "upstream failed");
                upstream.errors.count(UpstreamError::HeadTooLarge);
                own(&Problem::upstream_head_too_large(), HandlerVerdict::Final)
            }
            // Of a keyed request the body is in memory by now: this one has no key.
            Self::Spoiled(error) => own(&Problem::of_body(&error), HandlerVerdict::Indeterminate),
            Self::Late => {
                warn!(upstream = name, "upstream did not answer in time");
                upstream.errors.count(UpstreamError::Timeout);
                own(&Problem::upstream_timeout(), HandlerVerdict::Indeterminate)
            }
        }
    }
}

fn failed(upstream: &ProxyUpstream, error: impl std::fmt::Display) -> Response<ProxyBody> {
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

impl Service<Request<RequestBody<Incoming>>> for ReverseProxy {
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
