//! The runtime: receives deliveries, runs them through the pipeline, and settles them.
//!
//! One task receives. Worker tasks take deliveries from the queue, one at a time for each ordering key. One task
//! extends the deadlines of all deliveries that wait or run. A delivery leaves the runtime only by being settled, or
//! unsettled when the process ends; the broker then delivers the message again.

mod control;
mod deadlines;
mod queue;
mod settle;

use std::{
    borrow::Cow,
    ops::Deref,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{join, join_all},
    stream,
};
use parking_lot::Mutex;
use semel_core::{Engine, Error, ErrorKind, Result};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

pub use self::control::{ConsumerControl, ConsumerReport};
use self::{
    deadlines::Deadlines,
    queue::{DeliveryQueue, QueuedDelivery},
};
use crate::{
    consumer::MessagePipeline,
    event::Event,
    message::Message,
    pipeline::{Backoff, BreakerPosition, CircuitBreaker, DeadLetters},
    request::{PANICKED, ProcessError, Processed, Refusal},
    source::{Delivery, Source},
    telemetry::{ConsumerMetrics, Settled},
};

/// Messages that are received in one call.
const MAX_RECEIVE: usize = 256;
/// Deliveries that are given back at the same time.
const CONCURRENT_RETURNS: usize = 64;
const LAG_EVERY: Duration = Duration::from_secs(10);
/// How long a source may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All that the tasks of a consumer share.
pub(crate) struct Runtime {
    parts: RuntimeParts,
    pub(crate) queue: DeliveryQueue,
    deadlines: Deadlines,
    extends_deadlines: bool,
    /// Deliveries that a worker gave back because the consumer shuts down.
    returned: AtomicUsize,
    /// What stopped the consumer from inside.
    fatal: Mutex<Option<Error>>,
}

impl Deref for Runtime {
    type Target = RuntimeParts;

    fn deref(&self) -> &RuntimeParts {
        &self.parts
    }
}

/// What a [`Runtime`] is made of.
pub(crate) struct RuntimeParts {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) engine: Option<Engine>,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) metrics: ConsumerMetrics,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) backoff: Backoff,
    pub(crate) workers: usize,
    /// Deliveries that a worker takes together.
    pub(crate) batch: usize,
    pub(crate) grace: Duration,
    pub(crate) max_in_flight: usize,
    /// Handlers that may run at the same time.
    pub(crate) concurrency: usize,
    pub(crate) paused: watch::Sender<bool>,
    /// Nothing more will be received, soon.
    pub(crate) stopping: watch::Sender<bool>,
    /// Nothing more is received. Only now events that wait are given back: earlier ones could be received again.
    pub(crate) draining: watch::Sender<bool>,
}

impl Runtime {
    pub(crate) fn new(parts: RuntimeParts) -> Self {
        let queue = DeliveryQueue::new(parts.max_in_flight, parts.concurrency);
        let extends_deadlines = parts.source.info().ack_deadline.is_some();
        let deadlines = Deadlines::default();
        Self {
            parts,
            queue,
            deadlines,
            extends_deadlines,
            returned: AtomicUsize::new(0),
            fatal: Mutex::new(None),
        }
    }

    /// Runs until `stopping` is true or the source has ended, then drains.
    pub(crate) async fn run(
        self: Arc<Self>,
        pipeline: Box<dyn MessagePipeline>,
    ) -> Result<ConsumerReport> {
        let mut background = JoinSet::new();
        if let Some(deadline) = self.source.info().ack_deadline {
            let runtime = self.clone();
            background.spawn(async move { runtime.deadlines.extend_all(deadline).await });
        }
        background.spawn(self.clone().report_lag());
        background.spawn(self.clone().report_state());
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(self.clone().work(pipeline.clone_box()));
        }
        drop(pipeline);
        self.receive().await;
        let report = self.drain(workers).await;
        background.shutdown().await;
        match self.fatal.lock().take() {
            Some(error) => Err(error),
            None => Ok(report),
        }
    }

    /// Receives until the consumer stops or the source ends.
    async fn receive(&self) {
        let mut stopping = self.stopping.subscribe();
        let mut paused = self.paused.subscribe();
        let mut backoff = Backoff::SHORT;
        loop {
            let received = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                received = self.receive_once(&mut paused) => received,
            };
            match received {
                None => {}
                Some(Ok(deliveries)) if deliveries.is_empty() => {
                    return self.finish_queue(&mut stopping).await;
                }
                Some(Ok(deliveries)) => {
                    backoff = Backoff::SHORT;
                    self.accept(deliveries);
                }
                // A process that goes on would look alive and consume nothing.
                Some(Err(error)) if error.kind() == ErrorKind::Closed => {
                    tracing::error!("the source has ended, and the consumer stops: {error}");
                    self.fatal.lock().get_or_insert(error);
                    return;
                }
                Some(Err(error)) => {
                    let pause = backoff.next_delay();
                    tracing::warn!("cannot receive messages, trying again in {pause:?}: {error}");
                    tokio::select! {
                        _ = stopping.wait_for(|stopping| *stopping) => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// One call of the source. `None` if the consumer was paused meanwhile.
    async fn receive_once(
        &self,
        paused: &mut watch::Receiver<bool>,
    ) -> Option<Result<Vec<Delivery>>> {
        // An error means that the consumer is gone, and this task with it.
        let _ = paused.wait_for(|paused| !*paused).await;
        self.breaker.ready().await;
        let free = self.queue.free().await;
        // One message shows whether a half-open breaker may close.
        let max = match self.breaker.position() {
            BreakerPosition::Closed => free.min(MAX_RECEIVE),
            BreakerPosition::HalfOpen | BreakerPosition::Open => 1,
        };
        tokio::select! {
            biased;
            _ = paused.wait_for(|paused| *paused) => None,
            received = self.source.receive(max) => Some(received),
        }
    }

    fn accept(&self, deliveries: Vec<Delivery>) {
        self.queue.push(deliveries.into_iter().map(|delivery| {
            if delivery.message.is_redelivery() {
                self.metrics.redelivered();
            }
            let ordering_key = ordering_key(&delivery.message);
            let deadline =
                self.extends_deadlines.then(|| self.deadlines.add(delivery.settlement()));
            QueuedDelivery { delivery, ordering_key, deadline }
        }));
    }

    /// Waits until all deliveries are settled, after the source has ended.
    async fn finish_queue(&self, stopping: &mut watch::Receiver<bool>) {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = self.queue.drained() => {}
        }
    }

    async fn work(self: Arc<Self>, mut pipeline: Box<dyn MessagePipeline>) {
        while let Some(queued) = self.queue.next_batch(self.batch).await {
            let messages = queued.iter().map(|it| it.delivery.message.clone()).collect();
            // A key strategy and a router are called before the first await.
            let processing = async { pipeline.process(messages).await };
            let results = AssertUnwindSafe(processing).catch_unwind().await;
            let results = results.unwrap_or_else(|_panic| {
                let panicked = || match queued.len() {
                    1 => ProcessError::Refused(Refusal::of_panic()),
                    // Any of them may have been the cause.
                    _ => ProcessError::Store(Error::new(ErrorKind::Unavailable, PANICKED)),
                };
                queued.iter().map(|_| Err(panicked())).collect()
            });
            let mut settling =
                queued.into_iter().zip(results).map(|(it, result)| self.finish(it, result));
            let first = settling.next();
            match (first, settling.len()) {
                (None, _) => {}
                (Some(only), 0) => only.await,
                (Some(first), _) => drop(join(first, join_all(settling)).await),
            }
        }
    }

    /// Settles a delivery. Its place in the queue is free then.
    async fn finish(&self, queued: QueuedDelivery, result: Result<Processed, ProcessError>) {
        let QueuedDelivery { delivery, ordering_key, deadline } = queued;
        let settling = AssertUnwindSafe(self.settle(delivery, result));
        if settling.catch_unwind().await.is_err() {
            tracing::error!("settling a message panicked; it comes again after its deadline");
        }
        if let Some(number) = deadline {
            self.deadlines.remove(number);
        }
        self.queue.finish(ordering_key.as_ref());
    }

    /// Gives back what waits, and waits for what runs.
    async fn drain(&self, mut workers: JoinSet<()>) -> ConsumerReport {
        self.stopping.send_replace(true);
        let deadline = Instant::now() + self.grace;
        let waiting = self.queue.close();
        self.draining.send_replace(true);
        let returned = waiting.len();
        let returning =
            stream::iter(waiting).for_each_concurrent(CONCURRENT_RETURNS, |queued| async {
                let position = queued.delivery.message.position.clone();
                match queued.delivery.nack(Duration::ZERO).await {
                    Ok(()) => self.metrics.settled(Settled::Returned),
                    Err(error) => self.unconfirmed(&position, &error),
                }
            });
        let ended = async {
            returning.await;
            while workers.join_next().await.is_some() {}
        };
        let is_drained = timeout_at(deadline, ended).await.is_ok();
        let left = self.queue.in_flight();
        if !is_drained {
            tracing::warn!(
                left,
                "handlers did not end within the grace time; their messages come again"
            );
            workers.shutdown().await;
        }
        if let Some(engine) = &self.engine {
            engine.shutdown(deadline.saturating_duration_since(Instant::now())).await;
        }
        match tokio::time::timeout(CLOSE_TIMEOUT, self.source.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot close the source: {error}"),
            Err(_) => tracing::warn!("the source did not close within {CLOSE_TIMEOUT:?}"),
        }
        let returned = returned + self.returned.load(Relaxed);
        ConsumerReport { returned, cut_off: if is_drained { 0 } else { left } }
    }

    async fn report_lag(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LAG_EVERY);
        loop {
            ticks.tick().await;
            match self.source.lag().await {
                #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                Ok(Some(lag)) => self.metrics.lag.set(lag as f64),
                Ok(None) => {}
                Err(error) => tracing::debug!("cannot read the lag of the source: {error}"),
            }
        }
    }

    /// Keeps the gauges of the breaker and of pauses.
    async fn report_state(self: Arc<Self>) {
        let mut changes = self.breaker.changes();
        let mut paused = self.paused.subscribe();
        loop {
            let (position, is_paused) = (self.breaker.position(), *paused.borrow_and_update());
            changes.borrow_and_update();
            let (breaker, is_open) = match position {
                BreakerPosition::Closed => (0.0, false),
                BreakerPosition::HalfOpen => (1.0, false),
                BreakerPosition::Open => (2.0, true),
            };
            self.metrics.breaker.set(breaker);
            self.metrics.paused.set(f64::from(is_paused || is_open));
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
            self.metrics.in_flight.set(self.queue.in_flight() as f64);
            tokio::select! {
                _ = changes.changed() => {}
                _ = paused.changed() => {}
                // An open breaker becomes half-open without a notification.
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}

/// The key within which order is kept, as [`Event::ordering_key`] finds it. Only a structured CloudEvent has to be read
/// for it.
fn ordering_key(message: &Arc<Message>) -> Option<Arc<str>> {
    let key = message.ordering_key.as_deref().map(Cow::Borrowed).or_else(|| {
        let has_attributes = message.headers.iter().any(|header| {
            header.name.len() >= 3
                && (header.name.as_bytes()[..2].eq_ignore_ascii_case(b"ce")
                    || header.name.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("cloud"))
                    || header.name.eq_ignore_ascii_case("content-type"))
        });
        let event = has_attributes.then(|| Event::from_message(message.clone()).ok()).flatten()?;
        event.attributes.extension("partitionkey").map(|key| Cow::Owned(key.to_owned()))
    });
    key.filter(|key| !key.is_empty()).map(|key| Arc::from(key.as_ref()))
}
