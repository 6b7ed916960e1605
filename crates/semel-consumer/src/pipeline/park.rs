//! Parking: after a dead letter, later events with the same ordering key become dead letters, too, until an operator
//! has dealt with the first. For consumers that must not skip an event of a sequence.

use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either};
use semel_core::{
    Engine, Error, ErrorClass, ErrorKind, Fingerprint, Forgetting, Key, Outcome, RunError, Scope,
    Verdict,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    dead_letter::DeadLetterReason,
    request::{EventRequest, ProcessError, Processed},
};

/// Parks an ordering key after a dead letter. Parked keys are records in the engine's store; `semel dead-letters
/// redrive` opens them again.
#[derive(Clone, Debug)]
pub struct ParkLayer {
    engine: Engine,
    scope: Scope,
}

impl ParkLayer {
    /// Keeps parked keys in the store of `engine`, for the consumer whose events are in `scope`.
    #[must_use]
    pub fn new(engine: Engine, scope: &Scope) -> Self {
        Self { engine, scope: parked_scope(scope) }
    }

    fn key(&self, request: &EventRequest) -> Option<Key> {
        request.event.ordering_key().and_then(|key| self.scope.key(key).ok())
    }

    async fn is_parked(&self, key: &Key) -> Result<bool, ProcessError> {
        let recorded = self.engine.recorded_outcome(key, &fingerprint()).await;
        Ok(recorded.map_err(store_error)?.is_some())
    }

    async fn park(&self, key: Key) -> Result<(), ProcessError> {
        let mark = |_| async { Verdict::Final(Outcome::success("")) };
        match self.engine.run_raw(key, fingerprint(), mark).await {
            Ok(_) => Ok(()),
            // The message is not acknowledged, so it comes again, as a duplicate, and parks the key then.
            Err(error) => Err(ProcessError::Store(semel_core::Error::new(
                semel_core::ErrorKind::Unavailable,
                format!("an ordering key cannot be parked: {error}"),
            ))),
        }
    }
}

/// Where the parked ordering keys of a consumer are recorded.
pub(crate) fn parked_scope(scope: &Scope) -> Scope {
    let operation = format!("{} parked", scope.operation());
    Scope::new(scope.namespace(), semel_core::Principal::Anonymous, operation)
}

/// What [`open_parked`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unparked {
    /// The key was parked and is open now.
    Yes,
    /// The key was not parked.
    No,
    /// A consumer is about to park it.
    BeingParked,
}

/// Opens an ordering key that the consumer with this scope may have parked, for a redrive.
pub(crate) async fn open_parked(
    engine: &Engine,
    scope: &Scope,
    ordering_key: &str,
    reason: &str,
) -> semel_core::Result<Unparked> {
    // A key that breaks the rules of a scope was never parked.
    let Ok(key) = parked_scope(scope).key(ordering_key) else { return Ok(Unparked::No) };
    let key = engine.key_hash(&key);
    match engine.forget(&key, reason).await? {
        Forgetting::Forgotten => Ok(Unparked::Yes),
        Forgetting::Missing => Ok(Unparked::No),
        // Only a recorded mark parks a key. One whose owner was lost will not be recorded.
        Forgetting::Refused(_) => match engine.store().get(&key).await? {
            Some(it) if it.record.is_leased(it.at) => Ok(Unparked::BeingParked),
            _ => Ok(Unparked::No),
        },
    }
}

fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(b"parked")
}

impl<S> Layer<S> for ParkLayer {
    type Service = ParkStage<S>;

    fn layer(&self, inner: S) -> ParkStage<S> {
        ParkStage { inner, settings: self.clone() }
    }
}

/// Made by [`ParkLayer`].
#[derive(Clone, Debug)]
pub struct ParkStage<S> {
    inner: S,
    settings: ParkLayer,
}

impl<S> Service<EventRequest> for ParkStage<S>
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
        let Some(key) = self.settings.key(&request) else {
            return Either::Left(self.inner.call(request));
        };
        let (mut inner, settings) = (self.inner.clone(), self.settings.clone());
        std::mem::swap(&mut inner, &mut self.inner);
        Either::Right(Box::pin(async move {
            if settings.is_parked(&key).await? {
                return settings.refuse(&request).await;
            }
            let result = inner.call(request).await;
            let is_dead_letter = match &result {
                Ok(processed) => {
                    processed.outcome.as_ref().is_some_and(|it| it.as_failure().is_some())
                }
                Err(error) => matches!(error, ProcessError::Refused(_)),
            };
            if is_dead_letter {
                settings.park(key).await?;
            }
            result
        }))
    }
}

impl ParkLayer {
    async fn refuse(&self, request: &EventRequest) -> Result<Processed, ProcessError> {
        // The event whose dead letter parked the key comes again if its acknowledgement was lost.
        let recorded = self.engine.recorded_outcome(&request.key, &request.fingerprint).await;
        match recorded {
            Ok(Some(answer)) => Ok(Processed {
                key: request.key_hash,
                outcome: Some(answer.value),
                duplicate: true,
                attempt: answer.attempt,
            }),
            Ok(None) | Err(RunError::Mismatch) => Err(ProcessError::Refused(request.refusal(
                DeadLetterReason::Parked,
                ErrorClass::BusinessRule,
                "an earlier event with the same ordering key is a dead letter",
            ))),
            Err(error) => Err(store_error(error)),
        }
    }
}

/// A mark has one fingerprint, so the only error is the store's.
fn store_error(error: RunError) -> ProcessError {
    match error {
        RunError::Store(error) => ProcessError::Store(error),
        error => ProcessError::Store(Error::new(ErrorKind::Unavailable, error.to_string())),
    }
}
