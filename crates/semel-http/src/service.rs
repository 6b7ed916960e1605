//! The service: takes the ready inner one, and decides from the head which way a request goes.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    body::{BoxError, RequestBody, ResponseBody},
    guard, observe,
    plan::{Plan, Shared},
    run::Call,
};

/// Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> IdempotencyService<S> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
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
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let plan = self.shared.plan(&parts);
        let version = parts.version;
        match plan {
            Plan::Pass => {
                let request = Request::from_parts(parts, RequestBody::passed(body));
                ResponseFuture::passed(self.inner.call(request))
            }
            Plan::Refuse(problem, echo) => {
                let unread = !body.is_end_stream();
                ResponseFuture::answered(if unread {
                    self.shared.refuse(&problem, &echo, version)
                } else {
                    self.shared.answer(&problem, &echo)
                })
            }
            Plan::Observe(ticket) => {
                let call = Box::new(Call { inner: self.take_ready(), parts });
                ResponseFuture::guarded(observe::observe(self.shared.clone(), ticket, call, body))
            }
            Plan::Guard(ticket) => {
                let call = Box::new(Call { inner: self.take_ready(), parts });
                ResponseFuture::guarded(guard::guard(self.shared.clone(), ticket, call, body))
            }
        }
    }
}

impl<S: Clone> IdempotencyService<S> {
    /// The one that was polled ready; a clone of it need not be.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        std::mem::replace(&mut self.inner, clone)
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What a guarded request resolves to.
pub(crate) type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The future of [`IdempotencyService`].
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, R, E> {
        Passed { #[pin] future: F },
        Guarded { future: Pin<Box<dyn Future<Output = Answer<R, E>> + Send>> },
        Answered { response: Option<Response<ResponseBody<R>>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    const fn passed(future: F) -> Self {
        Self { kind: Kind::Passed { future } }
    }

    fn guarded(future: impl Future<Output = Answer<R, E>> + Send + 'static) -> Self {
        Self { kind: Kind::Guarded { future: Box::pin(future) } }
    }

    const fn answered(response: Response<ResponseBody<R>>) -> Self {
        Self { kind: Kind::Answered { response: Some(response) } }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Answer<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Passed { future } => {
                let response = ready!(future.poll(cx));
                Poll::Ready(response.map(|response| response.map(ResponseBody::inner)))
            }
            KindProjection::Guarded { future } => future.as_mut().poll(cx),
            KindProjection::Answered { response } => {
                Poll::Ready(Ok(response.take().expect("polled after it was ready")))
            }
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
