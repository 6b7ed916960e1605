//! The service of one client connection: what every request goes through, in order.

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
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONNECTION, WWW_AUTHENTICATE},
    request::Parts,
};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use pin_project_lite::pin_project;
use semel::http::{BoxError, IdempotencyService, Problem, ResponseBody, ResponseFuture};
use tower_service::Service as _;
use tracing::{Level, debug, enabled};

use super::{
    checked_request::{CheckedRequest, ClientAddress},
    framing::ConnectionState,
    metrics,
    principal::JwtVerifier,
    proxy::{ProxyBody, ReverseProxy},
    routes::Routes,
    store_health::StoreHealth,
};

/// Everything that the connections share.
pub(super) struct RequestPipeline {
    pub(super) guarded: IdempotencyService<ReverseProxy>,
    pub(super) proxy: ReverseProxy,
    pub(super) routes: Routes,
    /// The header that names the caller.
    pub(super) principal: Option<HeaderName>,
    /// What a caller that nobody knows is told to show.
    pub(super) challenge: Option<HeaderValue>,
    pub(super) health: StoreHealth,
    /// What tokens are verified with, where the caller is found by them.
    pub(super) jwt: Option<JwtVerifier>,
}

/// One client's door.
pub(super) struct ClientService {
    pub(super) door: Arc<RequestPipeline>,
    pub(super) peer: ClientAddress,
    pub(super) in_flight: ConnectionState,
}

type ProtectedFuture = ResponseFuture<ReverseProxy, Incoming, ProxyBody>;
type RefusedFuture = std::future::Ready<Result<Response<ResponseBody<ProxyBody>>, Infallible>>;

impl Service<Request<Incoming>> for ClientService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = RespondFuture<Either<ProtectedFuture, RefusedFuture>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let began = Instant::now();
        self.in_flight.set(true);
        let (mut parts, body) = request.into_parts();
        let access = AccessLog::of(&parts);
        let (routes, principal) = (&self.door.routes, self.door.principal.as_ref());
        let answer = match CheckedRequest::of(&mut parts, &self.peer, routes, principal) {
            Ok(arrival) => {
                parts.extensions.insert(arrival);
                let request = Request::from_parts(parts, body);
                Either::Left(self.door.guarded.clone().call(request))
            }
            Err(problem) => Either::Right(std::future::ready(Ok(refused(&problem)))),
        };
        let door = self.door.clone();
        let in_flight = Some(InFlightMark(self.in_flight.clone()));
        RespondFuture { answer, door, in_flight, began, access }
    }
}

/// Nobody read the body: what comes next on this connection cannot be trusted.
fn refused(problem: &Problem) -> Response<ResponseBody<ProxyBody>> {
    let mut response = problem.response(Problem::BASE);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.map(|bytes| ResponseBody::from(ProxyBody::Own(bytes)))
}

/// What the log says of a request, for those who ask for that much. Queries and headers may hold secrets.
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

/// Dropped when the answer is out, or nobody wants it any more.
struct InFlightMark(ConnectionState);

impl Drop for InFlightMark {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

pin_project! {
    /// An answer in the making.
    pub(super) struct RespondFuture<F> {
        #[pin]
        answer: F,
        door: Arc<RequestPipeline>,
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
        this.answer.poll(cx).map(|answer| {
            let Ok(mut response) = answer;
            let took = this.began.elapsed();
            metrics::answered(response.status(), took);
            if let Some(access) = this.access.take() {
                access.log(response.status(), took);
            }
            let problem = response.extensions().get().map(Problem::name);
            this.door.health.answered(problem, response.headers());
            if problem == Some("principal-missing")
                && let Some(challenge) = &this.door.challenge
            {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge.clone());
            }
            let running = this.in_flight.take();
            Ok(response.map(|body| TrackedBody { body, _running: running }))
        })
    }
}

pin_project! {
    /// The body of an answer. Until it is dropped, its request is in flight.
    pub(super) struct TrackedBody {
        #[pin]
        body: ResponseBody<ProxyBody>,
        _running: Option<InFlightMark>,
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
