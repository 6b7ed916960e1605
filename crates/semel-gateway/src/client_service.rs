//! The service of one client connection: each request is checked, passes the idempotency layer and the proxy, and its
//! response is counted and logged.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONNECTION, WWW_AUTHENTICATE},
    request::Parts,
};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use pin_project_lite::pin_project;
use semel::http::{BoxError, Problem, ResponseBody, ResponseFuture};
use tower_service::Service as _;
use tracing::{Level, debug, enabled};

use super::{
    checked_request::{CheckedRequest, ClientAddress},
    framing::ConnectionState,
    metrics,
    pipeline::RequestPipeline,
    proxy::{ProxyBody, ReverseProxy},
};

/// The service of one client connection.
pub(super) struct ClientService {
    pub(super) pipeline: Arc<RequestPipeline>,
    pub(super) client: ClientAddress,
    pub(super) connection: ConnectionState,
}

type ProtectedFuture = ResponseFuture<ReverseProxy, Incoming, ProxyBody>;
type RefusedFuture = std::future::Ready<Result<Response<ResponseBody<ProxyBody>>, Infallible>>;

impl Service<Request<Incoming>> for ClientService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = RespondFuture<Either<ProtectedFuture, RefusedFuture>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let began = Instant::now();
        self.connection.set_in_flight(true);
        let (mut parts, body) = request.into_parts();
        let access = AccessLog::of(&parts);
        let (routes, principal) = (&self.pipeline.routes, self.pipeline.principal.as_ref());
        let response = match CheckedRequest::check(&mut parts, &self.client, routes, principal) {
            Ok(checked) => {
                parts.extensions.insert(checked);
                let request = Request::from_parts(parts, body);
                Either::Left(self.pipeline.protected.clone().call(request))
            }
            Err(problem) => Either::Right(std::future::ready(Ok(refused(&problem)))),
        };
        let pipeline = self.pipeline.clone();
        let in_flight = Some(InFlightMark(self.connection.clone()));
        RespondFuture { response, pipeline, in_flight, began, access }
    }
}

/// The response to a refused head. Its body was not read, so the connection is closed.
fn refused(problem: &Problem) -> Response<ResponseBody<ProxyBody>> {
    let mut response = problem.response(Problem::BASE);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.map(|bytes| ResponseBody::from(ProxyBody::Own(bytes)))
}

/// What the log shows of a request at debug level. Queries and headers may hold secrets and are left out.
struct AccessLog {
    method: Method,
    path: String,
}

impl AccessLog {
    fn of(parts: &Parts) -> Option<Box<Self>> {
        enabled!(Level::DEBUG).then(|| {
            Box::new(Self { method: parts.method.clone(), path: parts.uri.path().to_owned() })
        })
    }

    fn log(self, status: StatusCode, took: Duration) {
        let Self { method, path } = self;
        let (status, ms) = (status.as_u16(), took.as_secs_f64() * 1000.0);
        debug!(%method, path, status, ms, "answered");
    }
}

/// Marks the connection as having a request in flight. Dropped when the response is sent or no longer wanted.
struct InFlightMark(ConnectionState);

impl Drop for InFlightMark {
    fn drop(&mut self) {
        self.0.set_in_flight(false);
    }
}

pin_project! {
    /// The future of a response.
    pub(super) struct RespondFuture<F> {
        #[pin]
        response: F,
        pipeline: Arc<RequestPipeline>,
        in_flight: Option<InFlightMark>,
        began: Instant,
        access: Option<Box<AccessLog>>,
    }
}

impl<F> Future for RespondFuture<F>
where
    F: Future<Output = Result<Response<ResponseBody<ProxyBody>>, Infallible>>,
{
    type Output = Result<Response<TrackedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.response.poll(cx).map(|response| {
            let Ok(mut response) = response;
            let took = this.began.elapsed();
            metrics::answered(response.status(), took);
            if let Some(access) = this.access.take() {
                access.log(response.status(), took);
            }
            let problem = response.extensions().get().map(Problem::name);
            this.pipeline.health.answered(problem, response.headers());
            if problem == Some("principal-missing")
                && let Some(challenge) = &this.pipeline.challenge
            {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge.clone());
            }
            let in_flight = this.in_flight.take();
            Ok(response.map(|body| TrackedBody { body, _in_flight: in_flight }))
        })
    }
}

pin_project! {
    /// The body of a response. Its request is in flight until this is dropped.
    pub(super) struct TrackedBody {
        #[pin]
        body: ResponseBody<ProxyBody>,
        _in_flight: Option<InFlightMark>,
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
