//! The way of a request with a key: read the body, claim, run or replay, answer.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::poll_fn;
use http::{HeaderValue, Request, Response, request::Parts};
use http_body::Body;
use semel_core::{RawAnswer, RunError};
use tokio::{sync::oneshot, time::timeout};
use tower_service::Service;

use crate::{
    body::{BoxError, Collected, RequestBody, ResponseBody, Whole, collect},
    fingerprint::fingerprint,
    header::IDEMPOTENCY_STORED,
    plan::{Echo, Route, Shared, Ticket, key_in},
    problem::Problem,
    replay::{self, Unrecorded},
    run::{Run, Told},
    service::Answer,
};

/// How the wait for an answer ended.
enum End<R, E> {
    /// The answer is on its way while the operation still runs.
    Early(Response<ResponseBody<R>>),
    Landed(Result<RawAnswer, RunError>, Option<Told<R, E>>),
}

pub(crate) async fn guard<S, B, R>(
    shared: Arc<Shared>,
    ticket: Ticket,
    mut inner: S,
    parts: Parts,
    body: B,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Ticket { route, scope, key, echo } = ticket;
    let Whole { bytes, trailers, permit } = match read(body, &route, &shared).await {
        Ok(whole) => whole,
        Err(problem) => return Ok(shared.refuse(&problem, &echo, parts.version)),
    };
    let found = match key {
        Some(key) => Ok(Some(key)),
        None => {
            let find = route.policy.key_from.as_ref();
            let id = find.and_then(|find| find.find(&parts, &bytes));
            id.map(|id| key_in(&scope, &id)).transpose()
        }
    };
    let key = match found {
        Ok(Some(key)) => key,
        Ok(None) if route.policy.require_key => {
            return Ok(shared.answer(&Problem::key_missing(), &echo));
        }
        Ok(None) => {
            let request = Request::from_parts(parts, RequestBody::read(bytes, trailers));
            let answered = inner.call(request).await;
            drop(permit);
            return Ok(answered?.map(ResponseBody::inner));
        }
        Err(problem) => return Ok(shared.answer(&problem, &echo)),
    };
    let asked = fingerprint(&parts, &bytes, &route.policy.body);
    // Whoever may look at a replay is asked with the head, which the handler gets otherwise.
    let reader = shared.authorize.as_ref().map(|_| parts.clone());
    let (tell, told) = oneshot::channel();
    let request = Request::from_parts(parts, RequestBody::read(bytes, trailers));
    let budget = shared.budget.clone();
    let run = Run { inner, request, route: route.clone(), budget, permit, tell };
    let run = route.engine.run_raw(key, asked, move |context| run.attempt(context));
    match first(pin!(run), told).await {
        End::Early(response) => Ok(marked(response, &echo)),
        End::Landed(landing, own) => shared.land(landing, own, &route, &echo, reader).await,
    }
}

/// Reads the request body whole. What goes wrong here goes wrong before anything ran.
async fn read<B>(body: B, route: &Route, shared: &Shared) -> Result<Whole, Problem>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let policy = &route.policy;
    let body = pin!(body);
    let read = collect(body, policy.max_request_bytes, shared.budget.permit());
    match timeout(policy.read_timeout, read).await {
        Ok(Collected::Whole(whole)) => Ok(whole),
        Ok(Collected::TooLarge(_)) => {
            let max = policy.max_request_bytes;
            Err(Problem::body_too_large().detail(format!("nothing ran; send at most {max} bytes")))
        }
        Ok(Collected::NoRoom(_)) => Err(Problem::overloaded()),
        Ok(Collected::Broken(..)) => Err(Problem::body_unreadable()),
        Err(_) => Err(Problem::body_timeout()),
    }
}

/// Waits for the landing, or for an answer that is relayed before it.
async fn first<R, E>(
    mut run: Pin<&mut impl Future<Output = Result<RawAnswer, RunError>>>,
    mut told: oneshot::Receiver<Told<R, E>>,
) -> End<R, E> {
    let (mut own, mut listening) = (None, true);
    poll_fn(|cx| {
        let landing = run.as_mut().poll(cx);
        if listening && let Poll::Ready(answer) = Pin::new(&mut told).poll(cx) {
            listening = false;
            match answer {
                Ok(Told::Early(response)) => return Poll::Ready(End::Early(response)),
                answer => own = answer.ok(),
            }
        }
        landing.map(|landing| End::Landed(landing, own.take()))
    })
    .await
}

impl Shared {
    async fn land<R, E>(
        &self,
        landing: Result<RawAnswer, RunError>,
        own: Option<Told<R, E>>,
        route: &Route,
        echo: &Echo,
        reader: Option<Parts>,
    ) -> Answer<R, E> {
        let replay = match (landing, own) {
            (Ok(answer), Some(own)) if !answer.replayed => return own.answer(echo, answer.stored),
            // The handler answered, but nothing is recorded: it is the first caller's answer still.
            (
                Err(
                    RunError::Retry(_)
                    | RunError::Unknown
                    | RunError::Failed(_)
                    | RunError::Interrupted,
                ),
                Some(own),
            ) => return own.answer(echo, true),
            (Ok(answer), _) => answer.value,
            (Err(error), _) => match unrecorded(&error) {
                Some(outcome) => outcome,
                None => return Ok(self.answer(&Problem::of(&error, &route.policy), echo)),
            },
        };
        // Before anybody is asked, which may take long: what is held meanwhile is within the budget.
        let response = match replay::response(&replay, &self.budget) {
            Ok(response) => marked(response, echo),
            Err(problem) => return Ok(self.answer(&problem, echo)),
        };
        if let Some(parts) = reader
            && let Some(authorize) = &self.authorize
            && !authorize.allows(parts).await
        {
            return Ok(self.answer(&Problem::replay_forbidden(), echo));
        }
        Ok(response)
    }
}

/// The answer of the run that this request waited for, when it was not recorded.
fn unrecorded(error: &RunError) -> Option<Arc<semel_core::Outcome>> {
    let RunError::Retry(retry) = error else { return None };
    retry.error().downcast_ref().map(|Unrecorded(outcome)| outcome.clone())
}

impl<R, E> Told<R, E> {
    fn answer(self, echo: &Echo, stored: bool) -> Answer<R, E> {
        let mut response = match self {
            Self::Whole(response) | Self::Early(response) => response,
            Self::Failed(error) => return Err(error),
        };
        if !stored {
            response.headers_mut().insert(IDEMPOTENCY_STORED, HeaderValue::from_static("false"));
        }
        Ok(marked(response, echo))
    }
}

fn marked<T>(mut response: Response<T>, echo: &Echo) -> Response<T> {
    echo.mark(response.headers_mut());
    response
}
