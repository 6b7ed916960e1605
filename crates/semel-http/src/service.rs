//! The tower service: classifies each request, and passes, observes, refuses or protects it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    attempt::InnerCall,
    body::{BoxError, RequestBody, ResponseBody},
    classify::RequestAction,
    observe, protected,
    state::LayerState,
};

/// Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    state: Arc<LayerState>,
}

impl<S> IdempotencyService<S> {
    pub(crate) const fn new(inner: S, state: Arc<LayerState>) -> Self {
        Self { inner, state }
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    /// Always ready: a replay does not call the inner service, and a request that waits must not hold its
    /// capacity.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.state.classify(&parts) {
            RequestAction::Pass => self.pass(parts, body),
            RequestAction::PassWithContext(idempotency) => {
                parts.extensions.insert(idempotency);
                self.pass(parts, body)
            }
            RequestAction::Refuse(problem, echo) => {
                let unread = !body.is_end_stream();
                ResponseFuture::answered(if unread {
                    self.state.refuse(&problem, &echo, parts.version)
                } else {
                    self.state.answer(&problem, &echo)
                })
            }
            RequestAction::Observe(keyed) => {
                let call = Box::new(InnerCall { inner: self.inner.clone(), parts });
                ResponseFuture::boxed(observe::observe(self.state.clone(), keyed, call, body))
            }
            RequestAction::Protect(keyed) => {
                let call = Box::new(InnerCall { inner: self.inner.clone(), parts });
                ResponseFuture::boxed(protected::protect(self.state.clone(), keyed, call, body))
            }
        }
    }
}

impl<S: Clone> IdempotencyService<S> {
    fn pass<B, R>(&self, mut parts: Parts, body: B) -> ResponseFuture<S, B, R>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    {
        if let Some(base) = self.state.own_problem_base() {
            parts.extensions.insert(base);
        }
        let request = Request::from_parts(parts, RequestBody::passed(body));
        ResponseFuture::passed(self.inner.clone(), request)
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The answer to a request, or the error of the inner service.
pub(crate) type ServiceResult<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The future of [`IdempotencyService`].
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<RequestBody<B>>>,
    {
        #[pin]
        kind: ResponseFutureKind<S, B, R>,
    }
}

pin_project! {
    #[project = ResponseFutureProjection]
    enum ResponseFutureKind<S, B, R>
    where
        S: Service<Request<RequestBody<B>>>,
    {
        Waiting { inner: S, request: Option<Request<RequestBody<B>>> },
        Passed { #[pin] future: S::Future },
        Boxed { future: Pin<Box<dyn Future<Output = ServiceResult<R, S::Error>> + Send>> },
        Answered { response: Option<Response<ResponseBody<R>>> },
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<RequestBody<B>>>,
{
    const fn passed(inner: S, request: Request<RequestBody<B>>) -> Self {
        Self { kind: ResponseFutureKind::Waiting { inner, request: Some(request) } }
    }

    fn boxed(future: impl Future<Output = ServiceResult<R, S::Error>> + Send + 'static) -> Self {
        Self { kind: ResponseFutureKind::Boxed { future: Box::pin(future) } }
    }

    const fn answered(response: Response<ResponseBody<R>>) -> Self {
        Self { kind: ResponseFutureKind::Answered { response: Some(response) } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    type Output = ServiceResult<R, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.project().kind;
        loop {
            match kind.as_mut().project() {
                ResponseFutureProjection::Waiting { inner, request } => {
                    ready!(inner.poll_ready(cx))?;
                    let request = request.take().expect("the inner service is called once");
                    let future = inner.call(request);
                    kind.set(ResponseFutureKind::Passed { future });
                }
                ResponseFutureProjection::Passed { future } => {
                    let response = ready!(future.poll(cx));
                    return Poll::Ready(response.map(|response| response.map(ResponseBody::inner)));
                }
                ResponseFutureProjection::Boxed { future } => return future.as_mut().poll(cx),
                ResponseFutureProjection::Answered { response } => {
                    return Poll::Ready(Ok(response.take().expect("polled after it was ready")));
                }
            }
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<RequestBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
