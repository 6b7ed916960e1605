//! The circuit breaker: stops attempts while the handler keeps failing in a way that may pass.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    pipeline::backoff::Backoff,
    request::{EventRequest, ProcessError, Processed},
};

/// A circuit breaker. Clones share its state.
///
/// It is closed while attempts succeed or fail for good. After some failures in a row that may pass, of the handler or
/// of the store, it opens: no attempt is made, and the consumer receives no messages. After a pause it is half-open: one message at a time is
/// tried. A success closes it; a failure opens it for a longer pause.
#[derive(Clone)]
pub struct CircuitBreaker(Arc<BreakerInner>);

struct BreakerInner {
    failures_to_open: u32,
    pauses: Backoff,
    state: Mutex<BreakerState>,
    /// Raised by every change of `state`.
    changes: watch::Sender<u64>,
}

struct BreakerState {
    position: BreakerPosition,
    failures: u32,
    /// Openings since it was last closed.
    openings: u32,
    open_until: Option<Instant>,
    /// Until when no other message is tried in the half-open position. A handler that hangs must not stop the consumer.
    probing_until: Option<Instant>,
}

/// The position of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPosition {
    /// All messages are processed.
    Closed,
    /// One message at a time is tried.
    HalfOpen,
    /// No message is processed.
    Open,
}

/// The result of an attempt, as the breaker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Success,
    Failure,
    /// Says nothing about the handler.
    Nothing,
}

impl Counted {
    fn of(result: &Result<Processed, ProcessError>) -> Self {
        match result {
            Ok(processed) if processed.duplicate => Self::Nothing,
            Ok(_) => Self::Success,
            Err(ProcessError::Retry(_)) => Self::Failure,
            // Messages that are delivered while the store is down would only be given back.
            Err(ProcessError::Store(error)) if error.kind().is_retryable() => Self::Failure,
            Err(_) => Self::Nothing,
        }
    }
}

impl CircuitBreaker {
    /// Failures in a row that open it by default.
    pub const FAILURES: u32 = 20;
    /// Pauses by default: from five seconds to one minute.
    pub const PAUSES: Backoff =
        Backoff { first: Duration::from_secs(5), max: Duration::from_secs(60) };

    /// A closed breaker that opens after `failures` failures in a row, for pauses that grow with every opening.
    #[must_use]
    pub fn new(failures: u32, pauses: Backoff) -> Self {
        Self(Arc::new(BreakerInner {
            failures_to_open: failures.max(1),
            pauses,
            state: Mutex::new(BreakerState {
                position: BreakerPosition::Closed,
                failures: 0,
                openings: 0,
                open_until: None,
                probing_until: None,
            }),
            changes: watch::Sender::new(0),
        }))
    }

    /// Where it is now.
    #[must_use]
    pub fn position(&self) -> BreakerPosition {
        self.0.state.lock().current()
    }

    /// Waits until an attempt may be made: it is closed, or half-open with no attempt under way.
    pub async fn ready(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let pause = {
                let mut state = self.0.state.lock();
                match state.current() {
                    BreakerPosition::Closed => return,
                    BreakerPosition::HalfOpen if !state.is_probing() => return,
                    BreakerPosition::HalfOpen => state.probing_until,
                    BreakerPosition::Open => state.open_until,
                }
            };
            match pause {
                Some(until) => {
                    let _ = tokio::time::timeout_at(until, changes.changed()).await;
                }
                None => {
                    let _ = changes.changed().await;
                }
            }
        }
    }

    /// Takes part in an attempt, unless the breaker is open.
    fn enter(&self) -> Option<BreakerEntry> {
        let mut state = self.0.state.lock();
        let is_probe = match state.current() {
            BreakerPosition::Closed => false,
            BreakerPosition::HalfOpen if !state.is_probing() => {
                let pause = self.0.pauses.after(state.openings);
                state.probing_until = Some(Instant::now() + pause);
                true
            }
            BreakerPosition::HalfOpen | BreakerPosition::Open => return None,
        };
        drop(state);
        Some(BreakerEntry { breaker: self.clone(), is_probe, is_counted: false })
    }

    /// Runs a batch as one attempt, once the breaker lets it pass; `None` if the consumer shuts down before. The batch
    /// counts as a failure if one of its events fails and none has a new outcome.
    #[cfg(feature = "inbox")]
    pub(crate) async fn guard_batch<F>(
        &self,
        running: F,
        stopping: &mut watch::Receiver<bool>,
    ) -> Option<F::Output>
    where
        F: Future<Output = Vec<Result<Processed, ProcessError>>>,
    {
        let entry = loop {
            if let Some(entry) = self.enter() {
                break entry;
            }
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return None,
                () = self.ready() => {}
            }
        };
        let results = running.await;
        let counted: Vec<_> = results.iter().map(Counted::of).collect();
        let has = |what: Counted| counted.contains(&what);
        entry.finish(&match (has(Counted::Success), has(Counted::Failure)) {
            (true, _) => Counted::Success,
            (false, true) => Counted::Failure,
            (false, false) => Counted::Nothing,
        });
        Some(results)
    }

    fn count(&self, counted: &Counted, is_probe: bool) {
        let mut state = self.0.state.lock();
        let before = (state.position, state.probing_until);
        if is_probe {
            state.probing_until = None;
        }
        match counted {
            Counted::Nothing => {}
            // A message that was in progress when the breaker opened says nothing about the present.
            Counted::Success | Counted::Failure
                if state.position != BreakerPosition::Closed && !is_probe => {}
            Counted::Success => {
                state.failures = 0;
                state.openings = 0;
                state.position = BreakerPosition::Closed;
            }
            Counted::Failure => {
                state.failures = state.failures.saturating_add(1);
                if is_probe || state.failures >= self.0.failures_to_open {
                    state.openings = state.openings.saturating_add(1);
                    let pause = self.0.pauses.delay(state.openings);
                    state.open_until = Some(Instant::now() + pause);
                    state.position = BreakerPosition::Open;
                    tracing::warn!(
                        failures = state.failures,
                        "circuit breaker opened for {pause:?}"
                    );
                }
            }
        }
        if (state.position, state.probing_until) == before {
            return;
        }
        if state.position == BreakerPosition::Closed && before.0 != BreakerPosition::Closed {
            tracing::info!("circuit breaker closed");
        }
        drop(state);
        self.0.changes.send_modify(|it| *it += 1);
    }

    /// Notified by every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}

impl BreakerState {
    fn current(&mut self) -> BreakerPosition {
        if self.position == BreakerPosition::Open
            && self.open_until.is_none_or(|until| until <= Instant::now())
        {
            self.position = BreakerPosition::HalfOpen;
            self.probing_until = None;
        }
        self.position
    }

    fn is_probing(&self) -> bool {
        self.probing_until.is_some_and(|until| until > Instant::now())
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new(Self::FAILURES, Self::PAUSES)
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CircuitBreaker").field(&self.position()).finish()
    }
}

/// An attempt under way. If it is dropped, the next message may be tried.
struct BreakerEntry {
    breaker: CircuitBreaker,
    is_probe: bool,
    is_counted: bool,
}

impl BreakerEntry {
    fn finish(mut self, counted: &Counted) {
        self.is_counted = true;
        self.breaker.count(counted, self.is_probe);
    }
}

impl Drop for BreakerEntry {
    fn drop(&mut self) {
        if !self.is_counted {
            self.breaker.count(&Counted::Nothing, self.is_probe);
        }
    }
}

/// Refuses events while its [`CircuitBreaker`] is open, and counts the results of the others.
#[derive(Clone, Debug)]
pub struct CircuitBreakerLayer(pub CircuitBreaker);

impl<S> Layer<S> for CircuitBreakerLayer {
    type Service = CircuitBreakerStage<S>;

    fn layer(&self, inner: S) -> CircuitBreakerStage<S> {
        CircuitBreakerStage { inner, breaker: self.0.clone() }
    }
}

/// Made by [`CircuitBreakerLayer`].
#[derive(Clone, Debug)]
pub struct CircuitBreakerStage<S> {
    inner: S,
    breaker: CircuitBreaker,
}

impl<S> Service<EventRequest> for CircuitBreakerStage<S>
where
    S: Service<EventRequest, Response = Processed, Error = ProcessError>,
    S::Future: Send + 'static,
{
    type Response = Processed;
    type Error = ProcessError;
    type Future = BoxFuture<'static, Result<Processed, ProcessError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: EventRequest) -> Self::Future {
        let Some(entry) = self.breaker.enter() else {
            return Box::pin(std::future::ready(Err(ProcessError::CircuitOpen)));
        };
        let running = self.inner.call(request);
        Box::pin(async move {
            let result = running.await;
            entry.finish(&Counted::of(&result));
            result
        })
    }
}
