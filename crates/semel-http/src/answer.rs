//! The answer to a protected request, from the result of its run: the handler's own answer, a replay or a
//! problem.

use std::sync::Arc;

use http::{HeaderValue, Response, header::RETRY_AFTER, request::Parts};
use semel_core::{Outcome, RawAnswer, RunError};

use crate::{
    attempt::HandlerAnswer,
    body::ResponseBody,
    header::{IDEMPOTENCY_STORED, STRIPE_SHOULD_RETRY},
    keyed_request::EchoedHeaders,
    outcome::UnrecordedAnswer,
    problem::{self, Problem},
    replay,
    service::ServiceResult,
    state::{LayerState, PreparedRoute},
};

/// What the end of a run means for the caller.
pub(crate) enum RunEnd<R, E> {
    Answer(ServiceResult<R, E>),
    /// The caller gets this outcome. The flag is false if the outcome could not be recorded.
    Replay(Arc<Outcome>, bool),
}

impl LayerState {
    /// `own` is the handler's answer, if the handler ran for this request.
    pub(crate) fn run_end<R, E>(
        &self,
        result: Result<RawAnswer, RunError>,
        own: Option<HandlerAnswer<R, E>>,
        route: &PreparedRoute,
        echo: &EchoedHeaders,
    ) -> RunEnd<R, E> {
        match (result, own) {
            (Ok(answer), Some(own)) if !answer.replayed => {
                RunEnd::Answer(own.into_result(echo, answer.stored))
            }
            (Err(error), Some(HandlerAnswer::Whole(response)))
                if problem::is_unknown(&error, &route.policy) =>
            {
                let stored = !matches!(error, RunError::Interrupted);
                RunEnd::Answer(Ok(mark_stored(self.answer_on_hold(response, echo), stored)))
            }
            // The handler answered, but nothing is recorded. The first caller still gets the handler's answer.
            (
                Err(error @ (RunError::Retry(_) | RunError::Unknown | RunError::Interrupted)),
                Some(own),
            ) => RunEnd::Answer(own.into_result(echo, !matches!(error, RunError::Interrupted))),
            (Ok(answer), _) => RunEnd::Replay(answer.value, answer.stored),
            (Err(error), _) => match unrecorded(&error) {
                Some(outcome) if !problem::is_unknown(&error, &route.policy) => {
                    RunEnd::Replay(outcome, true)
                }
                Some(_) | None => {
                    let problem = Problem::of(&error, &route.policy);
                    RunEnd::Answer(Ok(self.answer(&problem, echo)))
                }
            },
        }
    }

    /// The recorded outcome as an answer, or 403 if the caller may not see it any more. `parts` is there if
    /// the layer has a hook that decides this.
    pub(crate) async fn replay<R>(
        &self,
        outcome: Arc<Outcome>,
        stored: bool,
        parts: Option<Box<Parts>>,
        echo: &EchoedHeaders,
    ) -> Response<ResponseBody<R>> {
        // Made before the hook is called, which may take long: the budget counts the body in the meantime.
        let mut replay = replay::response(&outcome, &self.budget);
        drop(outcome);
        if let Some(parts) = parts
            && !Box::pin(self.allows_replay(parts)).await
        {
            replay = Err(Problem::replay_forbidden());
        }
        match replay {
            Ok(response) => marked(mark_stored(response, stored), echo),
            Err(problem) => self.answer(&problem, echo),
        }
    }

    /// The answer of a run that left its key on hold. A problem of this layer or of an inner semel may advise
    /// a retry, and is replaced. The handler's own answer stays, without such advice.
    fn answer_on_hold<R>(
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

    async fn allows_replay(&self, parts: Box<Parts>) -> bool {
        match &self.authorize {
            Some(authorize) => authorize.allows(*parts).await,
            None => true,
        }
    }
}

/// The answer of the run that this request waited for, if it was not recorded.
fn unrecorded(error: &RunError) -> Option<Arc<Outcome>> {
    let RunError::Retry(retry) = error else { return None };
    retry.error().downcast_ref().map(|UnrecordedAnswer(outcome)| outcome.clone())
}

impl<R, E> HandlerAnswer<R, E> {
    fn into_result(self, echo: &EchoedHeaders, stored: bool) -> ServiceResult<R, E> {
        match self {
            Self::Whole(response) | Self::Streamed(response) => {
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

pub(crate) fn marked<T>(mut response: Response<T>, echo: &EchoedHeaders) -> Response<T> {
    echo.mark(response.headers_mut());
    response
}
