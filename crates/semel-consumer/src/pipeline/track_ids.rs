//! Mode *track ids*: the id of an event is remembered after its success, and nothing is claimed before.
//!
//! It costs a read before and a write after each event, and one more write before it where the broker does not count
//! deliveries or has reached the limit of attempts. A duplicate after the mark never runs; two copies at the same time may
//! both run.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use semel_core::{
    Ending, Engine, ErrorClass, Fingerprint, Outcome, Principal, RunError, Scope, Verdict,
    WorkError,
};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    backoff::Backoff,
    claim::{after_run, asked_delay},
    errors::ErrorHandling,
    validation::OnMismatch,
};
use crate::{
    handler::{EventContext, Handler},
    request::{EventRequest, FailedAttempt, ProcessError, Processed},
};

/// How often the mark of an event is written before its handler runs again.
const MARK_TRIES: u32 = 4;

/// Remembers the ids of processed events in the engine's store, without their outcomes.
#[derive(Clone, Debug)]
pub struct TrackIdsLayer {
    engine: Engine,
    on_mismatch: OnMismatch,
}

impl TrackIdsLayer {
    /// Remembers through `engine`.
    #[must_use]
    pub const fn new(engine: Engine, on_mismatch: OnMismatch) -> Self {
        Self { engine, on_mismatch }
    }
}

impl<H> Layer<ErrorHandling<H>> for TrackIdsLayer {
    type Service = TrackIdsStage<H>;

    fn layer(&self, inner: ErrorHandling<H>) -> TrackIdsStage<H> {
        TrackIdsStage { inner, settings: self.clone() }
    }
}

/// Made by [`TrackIdsLayer`].
#[derive(Debug)]
pub struct TrackIdsStage<H> {
    inner: ErrorHandling<H>,
    settings: TrackIdsLayer,
}

impl<H> Clone for TrackIdsStage<H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

impl<H: Handler> Service<EventRequest> for TrackIdsStage<H> {
    type Response = Processed;
    type Error = ProcessError;
    type Future = BoxFuture<'static, Result<Processed, ProcessError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: EventRequest) -> Self::Future {
        let Self { inner, settings: TrackIdsLayer { engine, on_mismatch } } = self.clone();
        Box::pin(async move {
            match engine.recorded_outcome(&request.key, &request.fingerprint).await {
                Ok(None) => {}
                Ok(Some(answer)) => return after_run(Ok(answer), on_mismatch, &request),
                Err(error) => return after_run(Err(error), on_mismatch, &request),
            }
            let request = match inner.max_attempts() {
                Some(max) if request.has_to_be_counted(max) => {
                    counted(&engine, request, max).await?
                }
                _ => request,
            };
            let attempt = request.attempt();
            let context = EventContext::tracked(request.key_hash, attempt);
            let outcome = match inner.attempt(&mut (), &request, context).await {
                Verdict::Final(outcome) => outcome,
                Verdict::NoEffect(error) => return Err(failed(&error, Ending::NoEffect, attempt)),
                Verdict::Retry(error) => return Err(failed(&error, Ending::Retry, attempt)),
                Verdict::Indeterminate(error) => {
                    return Err(failed(&error, Ending::Indeterminate, attempt));
                }
            };
            let mark = match outcome.as_failure() {
                Some(failure) => Outcome::failure(&*failure.kind, &*failure.message),
                None => Outcome::success(""),
            };
            let processed = set_mark(&engine, &request, mark, on_mismatch).await?;
            Ok(Processed { duplicate: false, attempt, ..processed })
        })
    }
}

fn failed(error: &WorkError, ending: Ending, attempt: u32) -> ProcessError {
    ProcessError::Retry(FailedAttempt {
        class: ErrorClass::Unknown,
        ending,
        attempt,
        retry_after: asked_delay(error.error()),
        error: error.error().to_string(),
    })
}

/// Remembers the id after the handler has run. If that fails, the handler runs again, so it counts as an attempt.
async fn set_mark(
    engine: &Engine,
    request: &EventRequest,
    mark: Outcome,
    on_mismatch: OnMismatch,
) -> Result<Processed, ProcessError> {
    let mut backoff = Backoff::SHORT;
    let mut tries = 0;
    loop {
        let mark = mark.clone();
        let work = move |_| async move { Verdict::Final(mark) };
        let marked = engine.run_raw(request.key.clone(), request.fingerprint, work).await;
        tries += 1;
        match after_run(marked, on_mismatch, request) {
            Err(error @ (ProcessError::Store(_) | ProcessError::Busy { .. }))
                if tries == MARK_TRIES =>
            {
                let error = WorkError::retry(error).class(ErrorClass::Transient);
                return Err(failed(&error, Ending::Retry, request.attempt()));
            }
            Err(ProcessError::Store(_) | ProcessError::Busy { .. }) => {
                tokio::time::sleep(backoff.next_delay()).await;
            }
            result => return result,
        }
    }
}

/// Counts an attempt in a record of its own, if the broker does not count deliveries, or has delivered the message more
/// often than it may be tried: deliveries may have been given back before the handler ran. A message that kills the
/// process is never marked, so the count is written before the handler runs.
async fn counted(
    engine: &Engine,
    request: EventRequest,
    max: u32,
) -> Result<EventRequest, ProcessError> {
    let scope = request.key.scope();
    let scope = Scope::new(
        scope.namespace(),
        Principal::Anonymous,
        format!("{} attempts", scope.operation()),
    );
    let key = scope.key(request.attempts_id()).map_err(ProcessError::Store)?;
    let count =
        |_| async { Verdict::Retry(WorkError::retry("counted").class(ErrorClass::Transient)) };
    match engine.run_raw(key, Fingerprint::of_bytes(b"attempts"), count).await {
        Err(RunError::Retry(retry)) if retry.attempt <= max => {
            Ok(EventRequest { counted_attempt: Some(retry.attempt), ..request })
        }
        Err(RunError::Busy { retry_after }) => Err(ProcessError::Busy { retry_after }),
        Err(RunError::Store(error)) => Err(ProcessError::Store(error)),
        // The engine counts to the same limit.
        Ok(_) | Err(_) => Err(ProcessError::Refused(request.attempts_exhausted(max))),
    }
}
