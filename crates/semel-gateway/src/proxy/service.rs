//! The service behind the idempotency layer: forwards requests to upstreams.

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

/// Forwards every request to the upstream that its [`CheckedRequest`] names.
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

    /// Waits for uploads that go on beside or after their responses.
    pub(crate) async fn finished(&self) {
        for pool in &*self.pools {
            pool.finished().await;
        }
    }

    async fn forward(self, request: Request<RequestBody<Incoming>>) -> Response<ProxyBody> {
        let (mut parts, body) = request.into_parts();
        let checked: CheckedRequest = parts.extensions.remove().expect("ClientService inserts it");
        let pool = &self.pools[checked.route.upstream];
        let context = parts.extensions.remove::<Idempotency>();
        let (upstream, context) = (&pool.upstream, context.as_ref());
        headers::forward(&mut parts.headers, &checked, upstream, context, &self.rules);
        let body_is_framed = body.is_end_stream() || body.size_hint().exact().is_some();
        if !body_is_framed {
            // Set explicitly: for some methods hyper would take a missing length for an empty body.
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let Some(target) = target(&parts.uri, &pool.upstream) else {
            return problem_response(
                &Problem::target_invalid().detail(TOO_LONG),
                HandlerVerdict::NoEffect,
            );
        };
        parts.uri = target;
        parts.version = Version::HTTP_11;
        let (body, progress) = Upload::new(body);
        match pool.send(Request::from_parts(parts, body), progress).await {
            Ok(response) => forward_response(response, pool),
            Err(failure) => failure.response(&pool.upstream),
        }
    }
}

const TOO_LONG: &str =
    "nothing ran; the path is too long to put the upstream's base path before it";

/// The target for the upstream: its base path and the request's path.
fn target(uri: &Uri, upstream: &ProxyUpstream) -> Option<Uri> {
    if upstream.base.is_empty() {
        return Some(uri.clone());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path == "*" { "/" } else { path };
    format!("{}{path}", upstream.base).parse().ok()
}

fn forward_response(
    mut upstream: UpstreamResponse,
    pool: &Arc<ConnectionPool>,
) -> Response<ProxyBody> {
    let response = &mut upstream.response;
    // The gateway does not request another protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return failed(&pool.upstream, "it switched protocols without a request for it");
    }
    if !is_framed_once(response.headers()) {
        return failed(&pool.upstream, "the length of its response is ambiguous");
    }
    headers::remove_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    ProxiedBody::new(upstream, pool.clone()).map(|body| ProxyBody::Upstream(Box::new(body)))
}

/// True if exactly one header determines where a response ends. hyper would use one of several and pass the others on.
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
    fn response(self, upstream: &ProxyUpstream) -> Response<ProxyBody> {
        let name = upstream.name.as_str();
        match self {
            Self::Unreachable(error) => {
                warn!(upstream = name, %error, "upstream unreachable");
                upstream.errors.count(UpstreamError::Unreachable);
                problem_response(&Problem::upstream_unreachable(), HandlerVerdict::NoEffect)
            }
            Self::Failed(error) => failed(upstream, &error),
            Self::HeadTooLarge => {
                let error = "the head of its response is too large";
                warn!(upstream = name, error, "upstream failed");
                upstream.errors.count(UpstreamError::HeadTooLarge);
                problem_response(&Problem::upstream_head_too_large(), HandlerVerdict::Final)
            }
            // The body of a request with a key is in memory by now, so this request has no key.
            Self::ClientBody(error) => {
                problem_response(&Problem::of_body(&error), HandlerVerdict::Indeterminate)
            }
            Self::Timeout => {
                warn!(upstream = name, "upstream did not answer in time");
                upstream.errors.count(UpstreamError::Timeout);
                problem_response(&Problem::upstream_timeout(), HandlerVerdict::Indeterminate)
            }
        }
    }
}

fn failed(upstream: &ProxyUpstream, error: impl std::fmt::Display) -> Response<ProxyBody> {
    let name = upstream.name.as_str();
    warn!(upstream = name, %error, "upstream failed");
    upstream.errors.count(UpstreamError::Failed);
    problem_response(&Problem::upstream_failed(), HandlerVerdict::Indeterminate)
}

fn problem_response(problem: &Problem, verdict: HandlerVerdict) -> Response<ProxyBody> {
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
