//! The cheap half of the idempotency stage: a recorded outcome answers even while the circuit breaker is open, and for
//! a message that the broker has given up on.
//!
//! Otherwise the claim itself finds recorded outcomes, in the cache or in the store. A read before it would be one
//! round trip more for each new event. While the breaker is open no claim is made, because claims count as attempts.

use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either};
use semel_core::Engine;
use tower_layer::Layer;
use tower_service::Service;

use super::breaker::{BreakerPosition, CircuitBreaker};
use crate::request::{EventRequest, ProcessError, Processed};

/// Looks for a recorded outcome while the circuit breaker is open.
#[derive(Clone, Debug)]
pub struct LookupLayer {
    engine: Engine,
    breaker: CircuitBreaker,
}

impl LookupLayer {
    /// Looks into the store of `engine`.
    #[must_use]
    pub const fn new(engine: Engine, breaker: CircuitBreaker) -> Self {
        Self { engine, breaker }
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
        std::mem::swap(&mut inner, &mut self.inner);
        Either::Right(Box::pin(async move {
            match engine.recorded_outcome(&request.key, &request.fingerprint).await {
                Ok(Some(answer)) => Ok(Processed {
                    key: request.key_hash,
                    outcome: Some(answer.value),
                    duplicate: true,
                    attempt: answer.attempt,
                }),
                Ok(None) if given_up => Err(ProcessError::Refused(request.given_up())),
                Err(error) if given_up => Err(ProcessError::Store(error)),
                // The event waits in the retry stage until the breaker lets it pass.
                Ok(None) | Err(_) => inner.call(request).await,
            }
        }))
    }
}
