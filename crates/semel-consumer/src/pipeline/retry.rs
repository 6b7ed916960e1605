//! The retry stage. With strict order, an event that has to be tried again waits here, and later events with its
//! ordering key wait behind it. All other events are delivered again by the broker.
//!
//! An event that waits holds its ordering key, and no place of a running handler.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tower_layer::Layer;
use tower_service::Service;

use super::{backoff::Backoff, breaker::CircuitBreaker};
use crate::request::{EventRequest, ProcessError, Processed};

/// The longest pause before an event whose other copy runs, or whose store is down, is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Tries events again in this process, until they have an outcome or are refused. The number of attempts is limited by
/// the policy of the engine, which counts them in the store.
#[derive(Clone, Debug)]
pub struct RetryLayer {
    backoff: Backoff,
    breaker: CircuitBreaker,
    /// True once the consumer shuts down: an event that waits is given back to the broker.
    stopping: watch::Receiver<bool>,
    keeps_order: bool,
    holds_unattempted: bool,
    running: Arc<Semaphore>,
}

impl RetryLayer {
    /// Runs up to `concurrency` events at a time. With `keeps_order`, events with an ordering key are tried again here,
    /// after the pauses of `backoff` and until `stopping` is true; otherwise the broker delivers them again. Events
    /// that an open circuit breaker refuses wait here until it lets them pass.
    #[must_use]
    pub fn new(
        backoff: Backoff,
        breaker: CircuitBreaker,
        stopping: watch::Receiver<bool>,
        keeps_order: bool,
        concurrency: usize,
    ) -> Self {
        Self {
            backoff,
            breaker,
            stopping,
            keeps_order,
            holds_unattempted: false,
            running: Arc::new(Semaphore::new(concurrency)),
        }
    }

    /// Events whose other copy runs, or whose store is down, wait here, too. For stages in which the broker's count of
    /// deliveries limits attempts: it would count an event that is given back without one.
    #[must_use]
    pub fn hold_unattempted(self) -> Self {
        Self { holds_unattempted: true, ..self }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryStage<S>;

    fn layer(&self, inner: S) -> RetryStage<S> {
        RetryStage { inner, settings: Arc::new(self.clone()) }
    }
}

/// Made by [`RetryLayer`].
#[derive(Clone, Debug)]
pub struct RetryStage<S> {
    inner: S,
    settings: Arc<RetryLayer>,
}

impl<S> Service<EventRequest> for RetryStage<S>
where
    S: Service<EventRequest, Response = Processed, Error = ProcessError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Processed;
    type Error = ProcessError;
    type Future = BoxFuture<'static, Result<Processed, ProcessError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: EventRequest) -> Self::Future {
        let (mut inner, settings) = (self.inner.clone(), self.settings.clone());
        std::mem::swap(&mut inner, &mut self.inner);
        Box::pin(async move {
            let mut failures = 0;
            loop {
                let Some(slot) = settings.slot().await else { return Err(ProcessError::Stopping) };
                let result = inner.call(request.clone()).await;
                drop(slot);
                let Err(error) = result else { return result };
                failures += 1;
                if matches!(error, ProcessError::Retry(_)) {
                    request.failed_attempts += 1;
                }
                if !settings.waits_to_try_again(&request, &error, failures).await {
                    return Err(error);
                }
            }
        })
    }
}

impl RetryLayer {
    /// A place of a running handler; `None` once the consumer shuts down. With strict order many events wait here, and a
    /// shutdown must not wait until all of them have run.
    async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        if *self.stopping.borrow() {
            return None;
        }
        if let Ok(slot) = self.running.try_acquire() {
            return Some(slot);
        }
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => None,
            slot = self.running.acquire() => slot.ok(),
        }
    }

    /// Waits until the event may be tried again here. False if it may not: the broker delivers it again, or it is
    /// refused.
    async fn waits_to_try_again(
        &self,
        request: &EventRequest,
        error: &ProcessError,
        failures: u32,
    ) -> bool {
        if matches!(error, ProcessError::CircuitOpen) {
            return self.is_running_after(self.breaker.ready()).await;
        }
        let holds_key = self.keeps_order && request.event.ordering_key().is_some();
        let is_unattempted = matches!(error, ProcessError::Busy { .. } | ProcessError::Store(_));
        let stays = holds_key || (self.holds_unattempted && is_unattempted);
        if !stays {
            return false;
        }
        match self.pause(error, failures) {
            Some(pause) => self.is_running_after(tokio::time::sleep(pause)).await,
            None => false,
        }
    }

    /// The pause before the next try; `None` if there is none.
    fn pause(&self, error: &ProcessError, failures: u32) -> Option<Duration> {
        match error {
            ProcessError::Retry(failed) => {
                Some(self.backoff.delay(failed.attempt).max(failed.retry_after))
            }
            ProcessError::Busy { retry_after } => Some((*retry_after).min(LONGEST_WAIT)),
            ProcessError::Store(error) if error.kind().is_retryable() => {
                Some(self.backoff.delay(failures).min(LONGEST_WAIT))
            }
            // A record that cannot be read does not become readable by waiting: its key must not wait for it.
            ProcessError::Store(_) => None,
            ProcessError::CircuitOpen
            | ProcessError::Stopping
            | ProcessError::Refused(_)
            | ProcessError::Skipped
            | ProcessError::UnknownType { .. } => None,
        }
    }

    /// Waits for `pause`. False if the consumer began to shut down meanwhile.
    async fn is_running_after(&self, pause: impl Future<Output = ()>) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => false,
            () = pause => true,
        }
    }
}
