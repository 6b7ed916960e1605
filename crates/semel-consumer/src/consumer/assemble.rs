//! Puts the stages of the pipeline around a handler.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_util::future::BoxFuture;
use semel_core::{Error, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::{ConsumerBuilder, Mode, OnDeadLetter, Order, Stages};
#[cfg(feature = "inbox")]
use tokio::sync::watch;

#[cfg(feature = "inbox")]
use crate::pipeline::{CircuitBreaker, ErrorHandling, OnMismatch, TransactionLayer, process_batch};
use crate::{
    handler::Handler,
    message::Message,
    pipeline::{
        CircuitBreakerLayer, ClaimLayer, ErrorHandlingLayer, LookupLayer, ParkLayer, RetryLayer,
        TrackIdsLayer, ValidationLayer, ValidationRules,
    },
    request::{EventRequest, ProcessError, Processed},
};

/// The results of a batch, one for each message.
pub(crate) type Results = Vec<Result<Processed, ProcessError>>;

/// A whole pipeline as a worker has it.
pub(crate) trait MessagePipeline: Send + Sync {
    /// Processes messages, at most as many as [`batch`](Self::batch).
    fn process(&mut self, messages: Vec<Arc<Message>>) -> BoxFuture<'static, Results>;
    /// How many messages are processed together.
    fn batch(&self) -> usize;
    fn clone_box(&self) -> Box<dyn MessagePipeline>;
}

impl fmt::Debug for dyn MessagePipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessagePipeline")
    }
}

/// Stages around a handler whose type only the caller of the builder knows.
pub(crate) trait Assembly: Send + 'static {
    /// Refuses settings that would have no effect.
    fn check(&self, builder: &ConsumerBuilder) -> Result<()>;
    fn assemble(self: Box<Self>, stages: &Stages<'_>) -> Result<Box<dyn MessagePipeline>>;
}

/// Where attempts are counted.
#[derive(Clone, Copy)]
pub(crate) enum AttemptCounter {
    /// In the store, with each claim.
    Engine,
    /// By the broker, with each delivery.
    Broker,
}

/// A handler without a transaction: the engine claims and records.
pub(crate) struct EngineAssembly<H>(pub(crate) H);

impl<H: Handler> Assembly for EngineAssembly<H> {
    fn check(&self, _: &ConsumerBuilder) -> Result<()> {
        Ok(())
    }

    fn assemble(self: Box<Self>, stages: &Stages<'_>) -> Result<Box<dyn MessagePipeline>> {
        let Some(engine) = stages.engine.clone() else {
            return Err(Error::invalid("consumer: no store; call store() or engine()"));
        };
        let handler = Arc::new(self.0);
        let builder = stages.builder;
        let accepting = handler.clone();
        let validation = stages.validation(move |event_type| accepting.accepts(event_type));
        let handled = stages.error_handling().layer_shared(handler);
        let lookup = LookupLayer::new(engine.clone(), builder.breaker.clone(), builder.on_mismatch);
        Ok(match builder.mode {
            Mode::RecordOutcome => {
                let claim = ClaimLayer::new(engine.clone(), builder.on_mismatch).layer(handled);
                stages.finish(validation, &lookup, (AttemptCounter::Engine, claim))
            }
            Mode::TrackIds => {
                let track = TrackIdsLayer::new(engine, builder.on_mismatch).layer(handled);
                stages.finish(validation, &lookup, (AttemptCounter::Broker, track))
            }
        })
    }
}

/// A handler that writes in a transaction: the inbox claims and records.
#[cfg(feature = "inbox")]
pub(crate) struct TransactionAssembly<P, H> {
    pub(crate) inbox: semel_inbox::PgInbox<P>,
    pub(crate) handler: H,
    /// Events that share a transaction.
    pub(crate) batch: usize,
}

#[cfg(feature = "inbox")]
impl<P, H> Assembly for TransactionAssembly<P, H>
where
    P: semel_inbox::InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    fn check(&self, builder: &ConsumerBuilder) -> Result<()> {
        let refused = [
            ("mode(TrackIds)", builder.mode == Mode::TrackIds),
            ("on_dead_letter(Park)", builder.on_dead_letter == OnDeadLetter::Park),
            ("on_mismatch(Skip)", builder.on_mismatch == OnMismatch::Skip),
            ("order(Strict) with a batch", self.batch > 1 && builder.order == Some(Order::Strict)),
        ];
        match refused.iter().find(|(_, is_set)| *is_set) {
            Some((setting, _)) => Err(Error::invalid(format!(
                "consumer: {setting} has no effect with transactions; leave it out, or handle events without the inbox"
            ))),
            None => Ok(()),
        }
    }

    fn assemble(self: Box<Self>, stages: &Stages<'_>) -> Result<Box<dyn MessagePipeline>> {
        let Self { inbox, handler, batch } = *self;
        let handler = Arc::new(handler);
        let accepting = handler.clone();
        let validation = stages.validation(move |event_type| accepting.accepts(event_type));
        let handled = stages.error_handling().layer_shared(handler);
        if batch > 1 {
            let breaker = stages.builder.breaker.clone();
            let draining = stages.draining.clone();
            return Ok(Box::new(BatchPipeline {
                validation,
                handled,
                inbox,
                breaker,
                draining,
                batch,
            }));
        }
        let attempts =
            stages.retry(AttemptCounter::Broker, TransactionLayer::new(inbox).layer(handled));
        Ok(Box::new(ServicePipeline(validation.layer(attempts))))
    }
}

/// Validation, circuit breaker and one transaction for up to `batch` messages. What fails is delivered again by the
/// broker.
#[cfg(feature = "inbox")]
struct BatchPipeline<P, H> {
    validation: ValidationLayer,
    handled: ErrorHandling<H>,
    inbox: semel_inbox::PgInbox<P>,
    breaker: CircuitBreaker,
    /// True once the consumer shuts down.
    draining: watch::Receiver<bool>,
    batch: usize,
}

#[cfg(feature = "inbox")]
impl<P, H> MessagePipeline for BatchPipeline<P, H>
where
    P: semel_inbox::InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    fn process(&mut self, messages: Vec<Arc<Message>>) -> BoxFuture<'static, Results> {
        let (inbox, handled) = (self.inbox.clone(), self.handled.clone());
        let (breaker, rules) = (self.breaker.clone(), self.validation.0.clone());
        let mut draining = self.draining.clone();
        Box::pin(async move {
            let validated: Vec<_> = messages.into_iter().map(|it| rules.request(it)).collect();
            let requests = validated.iter().filter_map(|it| it.as_ref().ok().cloned()).collect();
            let running = process_batch(inbox, handled, requests);
            let results = breaker.guard_batch(running, &mut draining).await;
            let mut results = results.map(Vec::into_iter);
            let all = validated.into_iter().map(|it| match (it, &mut results) {
                (Err(error), _) => Err(error),
                (Ok(_), Some(results)) => results.next().unwrap_or(Err(ProcessError::Stopping)),
                (Ok(_), None) => Err(ProcessError::Stopping),
            });
            all.collect()
        })
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn clone_box(&self) -> Box<dyn MessagePipeline> {
        Box::new(Self {
            validation: self.validation.clone(),
            handled: self.handled.clone(),
            inbox: self.inbox.clone(),
            breaker: self.breaker.clone(),
            draining: self.draining.clone(),
            batch: self.batch,
        })
    }
}

impl Stages<'_> {
    pub(crate) fn validation(
        &self,
        accepts: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ValidationLayer {
        let builder = self.builder;
        ValidationLayer::new(ValidationRules {
            scope: self.scope.clone(),
            strategy: builder.strategy.clone(),
            engine: self.engine.clone(),
            max_bytes: builder.max_bytes,
            unknown_type: builder.unknown_type,
            on_mismatch: builder.on_mismatch,
            check_json: builder.check_json,
            accepts: Box::new(accepts),
        })
    }

    pub(crate) fn error_handling(&self) -> ErrorHandlingLayer {
        ErrorHandlingLayer {
            dead_letters: self.dead_letters.clone(),
            classifier: self.builder.classifier.clone(),
            max_attempts: Some(self.builder.max_attempts),
            on_lost_owner: self.builder.on_lost_owner,
            metrics: self.metrics.clone(),
        }
    }

    pub(crate) fn retry<S>(
        &self,
        counter: AttemptCounter,
        inner: S,
    ) -> <RetryLayer as Layer<<CircuitBreakerLayer as Layer<S>>::Service>>::Service {
        let builder = self.builder;
        let keeps_order = builder.order.unwrap_or_default() == Order::Strict;
        let breaker = builder.breaker.clone();
        let draining = self.draining.clone();
        let retry = RetryLayer::new(
            builder.backoff,
            breaker.clone(),
            draining,
            keeps_order,
            builder.concurrency,
        );
        let retry = match counter {
            AttemptCounter::Engine => retry,
            AttemptCounter::Broker => retry.hold_unattempted(),
        };
        retry.layer(CircuitBreakerLayer(breaker).layer(inner))
    }

    /// The stages in front of the claim, around `claim`.
    fn finish<S>(
        &self,
        validation: ValidationLayer,
        lookup: &LookupLayer,
        (counter, claim): (AttemptCounter, S),
    ) -> Box<dyn MessagePipeline>
    where
        S: Service<EventRequest, Response = Processed, Error = ProcessError>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        match (self.builder.on_dead_letter, &self.parking) {
            (OnDeadLetter::Park, Some(engine)) => {
                // Inside of the retry stage: while the store is down, the event keeps its ordering key.
                let park = ParkLayer::new(engine.clone(), &self.scope);
                let attempts = self.retry(counter, park.layer(claim));
                Box::new(ServicePipeline(validation.layer(lookup.layer(attempts))))
            }
            _ => Box::new(ServicePipeline(
                validation.layer(lookup.layer(self.retry(counter, claim))),
            )),
        }
    }
}

/// A tower service as a pipeline: one message at a time.
#[derive(Clone)]
pub(crate) struct ServicePipeline<S>(pub(crate) S);

impl<S> MessagePipeline for ServicePipeline<S>
where
    S: Service<Arc<Message>, Response = Processed, Error = ProcessError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    fn process(&mut self, messages: Vec<Arc<Message>>) -> BoxFuture<'static, Results> {
        let mut messages = messages.into_iter();
        // The stages of this crate are always ready: the first message needs no copy of them.
        let started = match self.0.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => messages.next().map(|message| self.0.call(message)),
            Poll::Ready(Err(_)) | Poll::Pending => None,
        };
        let rest = (messages.len() > 0).then(|| self.0.clone());
        Box::pin(async move {
            let mut results = Vec::with_capacity(messages.len() + 1);
            if let Some(started) = started {
                results.push(started.await);
            }
            let Some(mut service) = rest else { return results };
            for message in messages {
                results.push(match poll_fn(|cx| service.poll_ready(cx)).await {
                    Ok(()) => service.call(message).await,
                    Err(error) => Err(error),
                });
            }
            results
        })
    }

    fn batch(&self) -> usize {
        1
    }

    fn clone_box(&self) -> Box<dyn MessagePipeline> {
        Box::new(self.clone())
    }
}
