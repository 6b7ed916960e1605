//! The way of a request with a key: read the body, claim, run or replay, answer.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::poll_fn;
use http::{HeaderValue, Request, Response, header::RETRY_AFTER, request::Parts};
use http_body::Body;
use semel_core::{Outcome, RawAnswer, RunError};
use tokio::sync::oneshot;
use tower_service::Service;

use crate::{
    attempt::{HandlerAnswer, HttpAttempt, InnerCall},
    body::{BoxError, Collected, RequestBody, ResponseBody, WholeBody, collect},
    budget::SMALL,
    classify::{EchoedHeaders, KeyedRequest, LayerState, PreparedRoute},
    header::{IDEMPOTENCY_STORED, STRIPE_SHOULD_RETRY},
    identity::{ClaimFuture, RequestIdentity},
    problem::{self, Problem},
    replay::{self, UnrecordedAnswer},
    service::ServiceResult,
};

/// How the wait for an answer ended.
enum End<R, E> {
    /// The answer is on its way while the operation still runs.
    Early(Response<ResponseBody<R>>),
    Landed(Result<RawAnswer, RunError>, Option<HandlerAnswer<R, E>>),
}

pub(crate) async fn protect<S, B, R>(
    shared: Arc<LayerState>,
    keyed: KeyedRequest,
    call: Box<InnerCall<S>>,
    body: B,
) -> ServiceResult<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let KeyedRequest { route, scope, key, earlier_scope, echo } = keyed;
    let WholeBody { bytes, trailers, permit, .. } = match read(body, &route, &shared).await {
        Ok(whole) => whole,
        Err(problem) => return Ok(shared.refuse(&problem, &echo, call.parts.version)),
    };
    let key = match key {
        Some(key) => key,
        None => match route.find_key(&scope, &call.parts, &bytes) {
            Ok(Some(key)) => key,
            Ok(None) if route.policy.require_key => {
                return Ok(shared.answer(&Problem::key_missing(), &echo));
            }
            Ok(None) => {
                let body = RequestBody::in_memory(bytes, trailers);
                return Box::pin(call.pass_read(body, permit)).await;
            }
            Err(problem) => return Ok(shared.answer(&problem, &echo)),
        },
    };
    drop(scope);
    let identity = RequestIdentity::new(&route, key, earlier_scope.as_ref(), &call.parts, &bytes);
    // The hook that allows replays gets a copy of the head: the handler takes the head itself.
    let reader = shared.authorize.as_ref().map(|_| Box::new(call.parts.clone()));
    // Room for a small answer is taken before anything runs: one that is lost for want of it would be
    // lost for as long as the record is kept.
    let mut room = shared.budget.permit();
    if !room.reserve(SMALL) {
        return Ok(shared.answer(&Problem::overloaded(), &echo));
    }
    let (tell, told) = oneshot::channel();
    let body = RequestBody::in_memory(bytes, trailers);
    let run = Box::new(HttpAttempt { call, body, route: route.clone(), permit, room, tell });
    let run = identity.claim(&route, move |context| run.attempt(context));
    let (landing, own) = match first(run, told).await {
        End::Early(response) => return Ok(marked(response, &echo)),
        End::Landed(Err(RunError::Mismatch), _) => {
            let problem = Box::pin(identity.mismatch(&route)).await;
            return Ok(shared.answer(&problem, &echo));
        }
        End::Landed(landing, own) => (landing, own),
    };
    match shared.land(landing, own, &route, &echo) {
        Landed::Answer(answer) => answer,
        Landed::Replay(outcome, stored) => {
            // Before anybody is asked, which may take long: what is held meanwhile is in the budget.
            let mut replay = replay::response(&outcome, &shared.budget);
            drop(outcome);
            if let Some(parts) = reader
                && !Box::pin(shared.allows(parts)).await
            {
                replay = Err(Problem::replay_forbidden());
            }
            Ok(match replay {
                Ok(response) => marked(mark_stored(response, stored), &echo),
                Err(problem) => shared.answer(&problem, &echo),
            })
        }
    }
}

/// Reads the request body whole. What goes wrong here goes wrong before anything ran.
async fn read<B>(body: B, route: &PreparedRoute, shared: &LayerState) -> Result<WholeBody, Problem>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let policy = &route.policy;
    let body = pin!(body);
    let read = collect(body, policy.max_request_bytes, shared.budget.permit());
    match shared.timeout.within(policy.read_timeout, read).await {
        Some(Collected::Whole(whole)) => Ok(whole),
        Some(Collected::TooLarge(_)) => {
            let max = policy.max_request_bytes;
            Err(Problem::body_too_large().detail(format!("nothing ran; send at most {max} bytes")))
        }
        Some(Collected::NoCapacity(_)) => Err(Problem::overloaded()),
        Some(Collected::Broken(_, error)) => Err(Problem::of_body(&*error)),
        None => Err(Problem::body_timeout()),
    }
}

/// Waits for the landing, or for an answer that is relayed before it.
async fn first<R, E>(
    mut run: ClaimFuture,
    mut told: oneshot::Receiver<HandlerAnswer<R, E>>,
) -> End<R, E> {
    let (mut own, mut listening) = (None, true);
    poll_fn(|cx| {
        let landing = run.as_mut().poll(cx);
        if listening && let Poll::Ready(answer) = Pin::new(&mut told).poll(cx) {
            listening = false;
            match answer {
                Ok(HandlerAnswer::Early(response)) => return Poll::Ready(End::Early(response)),
                answer => own = answer.ok(),
            }
        }
        landing.map(|landing| End::Landed(landing, own.take()))
    })
    .await
}

/// What a landing means for the caller.
enum Landed<R, E> {
    Answer(ServiceResult<R, E>),
    /// To be answered with what is recorded; or could not be, if the flag is false.
    Replay(Arc<Outcome>, bool),
}

impl LayerState {
    fn land<R, E>(
        &self,
        landing: Result<RawAnswer, RunError>,
        own: Option<HandlerAnswer<R, E>>,
        route: &PreparedRoute,
        echo: &EchoedHeaders,
    ) -> Landed<R, E> {
        match (landing, own) {
            (Ok(answer), Some(own)) if !answer.replayed => {
                Landed::Answer(own.answer(echo, answer.stored))
            }
            (Err(error), Some(HandlerAnswer::Whole(response)))
                if problem::is_unknown(&error, &route.policy) =>
            {
                let stored = !matches!(error, RunError::Interrupted);
                Landed::Answer(Ok(mark_stored(self.held(response, echo), stored)))
            }
            // The handler answered, but nothing is recorded: it is the first caller's answer still.
            (
                Err(error @ (RunError::Retry(_) | RunError::Unknown | RunError::Interrupted)),
                Some(own),
            ) => Landed::Answer(own.answer(echo, !matches!(error, RunError::Interrupted))),
            (Ok(answer), _) => Landed::Replay(answer.value, answer.stored),
            (Err(error), _) => match unrecorded(&error) {
                Some(outcome) if !problem::is_unknown(&error, &route.policy) => {
                    Landed::Replay(outcome, true)
                }
                Some(_) | None => {
                    let problem = Problem::of(&error, &route.policy);
                    Landed::Answer(Ok(self.answer(&problem, echo)))
                }
            },
        }
    }

    /// The answer of a run that left its key on hold. A problem of ours, or of a semel further in, may advise a
    /// retry, and is replaced; the handler's own answer stays, without such advice.
    fn held<R>(
        &self,
        mut response: Response<ResponseBody<R>>,
        echo: &EchoedHeaders,
    ) -> Response<ResponseBody<R>> {
        if problem::inner_problem(&response).is_some() {
            let cause = response.extensions().get();
            return self.answer(&Problem::unknown_after(cause), echo);
        }
        let headers = response.headers_mut();
        headers.remove(RETRY_AFTER);
        headers.insert(STRIPE_SHOULD_RETRY, HeaderValue::from_static("false"));
        marked(response, echo)
    }

    /// Whether the caller may still see what is recorded.
    async fn allows(&self, parts: Box<Parts>) -> bool {
        match &self.authorize {
            Some(authorize) => authorize.allows(*parts).await,
            None => true,
        }
    }
}

/// The answer of the run that this request waited for, when it was not recorded.
fn unrecorded(error: &RunError) -> Option<Arc<Outcome>> {
    let RunError::Retry(retry) = error else { return None };
    retry.error().downcast_ref().map(|UnrecordedAnswer(outcome)| outcome.clone())
}

impl<R, E> HandlerAnswer<R, E> {
    fn answer(self, echo: &EchoedHeaders, stored: bool) -> ServiceResult<R, E> {
        match self {
            Self::Whole(response) | Self::Early(response) => {
                Ok(marked(mark_stored(response, stored), echo))
            }
            Self::Failed(error) => Err(error),
        }
    }
}

fn mark_stored<T>(mut response: Response<T>, stored: bool) -> Response<T> {
    if !stored {
        response.headers_mut().insert(IDEMPOTENCY_STORED, HeaderValue::from_static("false"));
    }
    response
}

fn marked<T>(mut response: Response<T>, echo: &EchoedHeaders) -> Response<T> {
    echo.mark(response.headers_mut());
    response
}
