//! The cheap half of the idempotency stage: a recorded outcome answers even while the circuit breaker is open, and for
//! a message that the broker has given up on.
//!
//! Otherwise the claim itself finds recorded outcomes, in the cache or in the store. A read before it would be one
//! round trip more for each new event. While the breaker is open no claim is made, because claims count as attempts.

use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either};
use semel_core::{Engine, Verdict, WorkError};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    breaker::{BreakerPosition, CircuitBreaker},
    claim::after_run,
    validation::OnMismatch,
};
use crate::request::{EventRequest, ProcessError, Processed};

/// Looks for a recorded outcome while the circuit breaker is open.
#[derive(Clone, Debug)]
pub struct LookupLayer {
    engine: Engine,
    breaker: CircuitBreaker,
    on_mismatch: OnMismatch,
}

impl LookupLayer {
    /// Looks into the store of `engine`.
    #[must_use]
    pub const fn new(engine: Engine, breaker: CircuitBreaker, on_mismatch: OnMismatch) -> Self {
        Self { engine, breaker, on_mismatch }
    }
}

impl<S> Layer<S> for LookupLayer {
    type Service = LookupStage<S>;

    fn layer(&self, inner: S) -> LookupStage<S> {
        LookupStage { inner, settings: self.clone() }
    }
}

/// Made by [`LookupLayer`].
#[derive(Clone, Debug)]
pub struct LookupStage<S> {
    inner: S,
    settings: LookupLayer,
}

impl<S> Service<EventRequest> for LookupStage<S>
where
    S: Service<EventRequest, Response = Processed, Error = ProcessError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Processed;
    type Error = ProcessError;
    type Future = Either<S::Future, BoxFuture<'static, Result<Processed, ProcessError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: EventRequest) -> Self::Future {
        let given_up = request.event.message.given_up;
        if !given_up && self.settings.breaker.position() != BreakerPosition::Open {
            return Either::Left(self.inner.call(request));
        }
        let (mut inner, engine) = (self.inner.clone(), self.settings.engine.clone());
        let on_mismatch = self.settings.on_mismatch;
        std::mem::swap(&mut inner, &mut self.inner);
        Either::Right(Box::pin(async move {
            if given_up {
                return unless_recorded(&engine, request, on_mismatch).await;
            }
            match engine.recorded_outcome(&request.key, &request.fingerprint).await {
                Ok(Some(answer)) => Ok(Processed {
                    key: request.key_hash,
                    outcome: Some(answer.value),
                    duplicate: true,
                    attempt: answer.attempt,
                }),
                // The event waits in the retry stage until the breaker lets it pass.
                Ok(None) | Err(_) => inner.call(request).await,
            }
        }))
    }
}

/// A message that the broker has given up on is a dead letter, unless its event has an outcome or a copy of it runs. A
/// claim that does nothing finds out.
async fn unless_recorded(
    engine: &Engine,
    request: EventRequest,
    on_mismatch: OnMismatch,
) -> Result<Processed, ProcessError> {
    let nothing = |_| async { Verdict::NoEffect(WorkError::no_effect("the broker has given up")) };
    let result = engine.run_raw(request.key.clone(), request.fingerprint, nothing).await;
    match after_run(result, on_mismatch, &request) {
        Err(ProcessError::Retry(_)) => Err(ProcessError::Refused(request.given_up())),
        result => result,
    }
}
