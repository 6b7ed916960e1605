//! The authoritative claim: the engine claims the event's key, runs the handler under a lease, and records its
//! outcome.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use semel_core::{Engine, Error, ErrorClass, ErrorKind, RawAnswer, Retry, RunError};
use tower_layer::Layer;
use tower_service::Service;

use super::{errors::ErrorHandling, validation::OnMismatch};
use crate::{
    dead_letter::DeadLetterReason,
    handler::{EventContext, Handler, RetryAfter},
    request::{EventRequest, FailedAttempt, ProcessError, Processed},
};

/// Claims each event's key in the engine's store, and records the outcome there: mode *record outcome*.
#[derive(Clone, Debug)]
pub struct ClaimLayer {
    engine: Engine,
    on_mismatch: OnMismatch,
}

impl ClaimLayer {
    /// Claims through `engine`.
    #[must_use]
    pub const fn new(engine: Engine, on_mismatch: OnMismatch) -> Self {
        Self { engine, on_mismatch }
    }
}

impl<H> Layer<ErrorHandling<H>> for ClaimLayer {
    type Service = ClaimStage<H>;

    fn layer(&self, inner: ErrorHandling<H>) -> ClaimStage<H> {
        ClaimStage { inner, settings: self.clone() }
    }
}

/// Made by [`ClaimLayer`].
#[derive(Debug)]
pub struct ClaimStage<H> {
    inner: ErrorHandling<H>,
    settings: ClaimLayer,
}

impl<H> Clone for ClaimStage<H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

impl<H: Handler> Service<EventRequest> for ClaimStage<H> {
    type Response = Processed;
    type Error = ProcessError;
    type Future = BoxFuture<'static, Result<Processed, ProcessError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: EventRequest) -> Self::Future {
        let Self { inner, settings: ClaimLayer { engine, on_mismatch } } = self.clone();
        Box::pin(async move {
            let (key, fingerprint) = (request.key.clone(), request.fingerprint);
            let attempted = request.clone();
            let work = move |context| async move {
                inner.attempt(&mut (), &attempted, EventContext::leased(context)).await
            };
            let result = engine.run_raw(key, fingerprint, work).await;
            after_run(result, on_mismatch, &request)
        })
    }
}

/// What a run of the engine means for the message of `request`.
pub(super) fn after_run(
    result: Result<RawAnswer, RunError>,
    on_mismatch: OnMismatch,
    request: &EventRequest,
) -> Result<Processed, ProcessError> {
    let key = request.key_hash;
    let duplicate = Processed { key, outcome: None, duplicate: true, attempt: 0 };
    let refused = |reason, class, error: &str| {
        Err(ProcessError::Refused(request.refusal(reason, class, error)))
    };
    let unavailable =
        |what: String| Err(ProcessError::Store(Error::new(ErrorKind::Unavailable, what)));
    match result {
        Ok(answer) if answer.stored => Ok(Processed {
            key,
            outcome: Some(answer.value),
            duplicate: answer.replayed,
            attempt: answer.attempt,
        }),
        Ok(_) => unavailable("the work is done, but its outcome could not be recorded".to_owned()),
        Err(RunError::Retry(retry)) => Err(ProcessError::Retry(failed(&retry))),
        Err(RunError::Busy { retry_after }) => Err(ProcessError::Busy { retry_after }),
        // An operator erased the outcome of an event that was processed.
        Err(RunError::Gone) => Ok(duplicate),
        Err(RunError::Mismatch) if on_mismatch == OnMismatch::Skip => Ok(duplicate),
        Err(RunError::Mismatch) => refused(
            DeadLetterReason::Mismatch,
            ErrorClass::Validation,
            "an earlier event with the same id has another payload",
        ),
        Err(RunError::Unknown) => refused(
            DeadLetterReason::Unknown,
            ErrorClass::Unknown,
            "it is not known whether an earlier attempt took effect; resolve the key",
        ),
        Err(RunError::Dead) => refused(
            DeadLetterReason::AttemptsExhausted,
            ErrorClass::Unknown,
            "all attempts were used, and the last one ended without a result",
        ),
        Err(RunError::Store(error)) => Err(ProcessError::Store(error)),
        Err(error) => unavailable(error.to_string()),
    }
}

fn failed(retry: &Retry) -> FailedAttempt {
    FailedAttempt {
        class: retry.class,
        ending: retry.ending,
        attempt: retry.attempt,
        retry_after: retry.retry_after.max(asked_delay(retry.error())),
        error: retry.error().to_string(),
    }
}

/// The delay that a handler's error asks for.
pub(super) fn asked_delay(error: &(dyn std::error::Error + 'static)) -> std::time::Duration {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    errors
        .filter_map(|error| error.downcast_ref::<RetryAfter>())
        .map(|error| error.delay)
        .next()
        .unwrap_or_default()
}
