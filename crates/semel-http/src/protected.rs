//! The path of a protected request: read its body, claim its key, then run the handler or replay.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::poll_fn;
use http::{Request, Response};
use http_body::Body;
use semel_core::{RawAnswer, RunError};
use tokio::sync::oneshot;
use tower_service::Service;

use crate::{
    answer::{RunEnd, marked},
    attempt::{HandlerAnswer, HttpAttempt, InnerCall},
    body::{BoxError, Collected, RequestBody, ResponseBody, WholeBody, collect},
    budget::SMALL_BODY,
    identity::{ClaimFuture, RequestIdentity},
    keyed_request::KeyedRequest,
    mismatch,
    problem::Problem,
    service::ServiceResult,
    state::{LayerState, PreparedRoute},
};

/// What a request waits for after its claim was sent.
enum FirstResult<R, E> {
    /// The handler streams its answer while the operation still runs.
    Streamed(Response<ResponseBody<R>>),
    /// The run ended. The handler's answer is there if the handler ran for this request.
    Ended(Result<RawAnswer, RunError>, Option<HandlerAnswer<R, E>>),
}

pub(crate) async fn protect<S, B, R>(
    state: Arc<LayerState>,
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
    let WholeBody { bytes, trailers, permit, .. } = match read_body(body, &route, &state).await {
        Ok(whole) => whole,
        Err(problem) => return Ok(state.refuse(&problem, &echo, call.parts.version)),
    };
    let key = match key {
        Some(key) => key,
        None => match route.find_key(&scope, &call.parts, &bytes) {
            Ok(Some(key)) => key,
            Ok(None) if route.policy.require_key => {
                return Ok(state.answer(&Problem::key_missing(), &echo));
            }
            Ok(None) => {
                let body = RequestBody::in_memory(bytes, trailers);
                return Box::pin(call.pass_with_permit(body, permit)).await;
            }
            Err(problem) => return Ok(state.answer(&problem, &echo)),
        },
    };
    drop(scope);
    let identity = RequestIdentity::new(&route, key, earlier_scope.as_ref(), &call.parts, &bytes);
    // The hook that allows replays gets a copy of the head: the handler takes the head itself.
    let replay_parts = state.authorize.as_ref().map(|_| Box::new(call.parts.clone()));
    // The capacity for a small answer is reserved before anything runs. Without it, an answer could be
    // recorded without its body, and every replay would lack the body until the record expires.
    let mut response_permit = state.budget.permit();
    if !response_permit.reserve(SMALL_BODY) {
        return Ok(state.answer(&Problem::overloaded(), &echo));
    }
    let (sender, handler_answer) = oneshot::channel();
    let attempt = Box::new(HttpAttempt {
        call,
        body: RequestBody::in_memory(bytes, trailers),
        route: route.clone(),
        request_permit: permit,
        response_permit,
        sender,
    });
    let claim = identity.claim(&route, move |context| attempt.run(context));
    match first_result(claim, handler_answer).await {
        FirstResult::Streamed(response) => Ok(marked(response, &echo)),
        FirstResult::Ended(Err(RunError::Mismatch), _) => {
            let problem = Box::pin(mismatch::problem(&identity, &route)).await;
            Ok(state.answer(&problem, &echo))
        }
        FirstResult::Ended(result, own) => match state.run_end(result, own, &route, &echo) {
            RunEnd::Answer(answer) => answer,
            RunEnd::Replay(outcome, stored) => {
                Ok(state.replay(outcome, stored, replay_parts, &echo).await)
            }
        },
    }
}

/// Reads the whole request body. Every error here comes before anything ran.
async fn read_body<B>(
    body: B,
    route: &PreparedRoute,
    state: &LayerState,
) -> Result<WholeBody, Problem>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let policy = &route.policy;
    let body = pin!(body);
    let read = collect(body, policy.max_request_bytes, state.budget.permit());
    match state.timeout.within(policy.read_timeout, read).await {
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

/// Waits for the end of the run, or for an answer that is streamed before it.
async fn first_result<R, E>(
    mut claim: ClaimFuture,
    mut handler_answer: oneshot::Receiver<HandlerAnswer<R, E>>,
) -> FirstResult<R, E> {
    let (mut own, mut listening) = (None, true);
    poll_fn(|cx| {
        let result = claim.as_mut().poll(cx);
        if listening && let Poll::Ready(answer) = Pin::new(&mut handler_answer).poll(cx) {
            listening = false;
            match answer {
                Ok(HandlerAnswer::Streamed(response)) => {
                    return Poll::Ready(FirstResult::Streamed(response));
                }
                answer => own = answer.ok(),
            }
        }
        result.map(|result| FirstResult::Ended(result, own.take()))
    })
    .await
}
