//! The consumer and its builder: a source, a handler, and the stages between them.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use semel_core::{
    Classifier, DefaultClassifier, Engine, Error, Finding, KeyStrategy, Level, OnLostOwner, Policy,
    Principal, Result, Scope, Store, WorkError,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

pub(crate) use self::assemble::MessagePipeline;
#[cfg(feature = "inbox")]
use self::assemble::TransactionAssembly;
use self::assemble::{Assembly, EngineAssembly};
use crate::{
    dead_letter::DeadLetterSink,
    event::Event,
    handler::{EventContext, Handler, handler_fn},
    pipeline::{Backoff, CircuitBreaker, DeadLetters, OnMismatch, UnknownType, ValidationLayer},
    runtime::{ConsumerControl, ConsumerReport, Runtime, RuntimeParts},
    source::{ConsumerPlan, Source, SourceInfo},
    telemetry::ConsumerMetrics,
};

mod assemble;
mod retention;

pub use self::retention::Retention;

/// What is recorded of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The key is claimed before the handler runs, and its outcome is recorded: one outcome per event.
    #[default]
    RecordOutcome,
    /// The id is remembered after a success, and nothing is claimed before. Cheaper; two copies that arrive at the
    /// same time may both run.
    TrackIds,
}

/// Whether later events of an ordering key wait for one that is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// They wait: an event that is tried again holds its ordering key.
    #[default]
    Strict,
    /// They pass it: the broker delivers the event again later. Events of one key still run one at a time.
    Relaxed,
}

/// What happens to the ordering key of an event that became a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// The next event of the key runs.
    #[default]
    Continue,
    /// All later events of the key become dead letters, too, until an operator redrives the first.
    Park,
}

/// Events of a source, each handled once. Made by [`Consumer::builder`].
#[derive(Debug)]
pub struct Consumer {
    control: ConsumerControl,
    pipeline: Box<dyn MessagePipeline>,
    checks: StartupChecks,
}

/// What is checked before the first message.
#[derive(Debug)]
struct StartupChecks {
    source: Arc<dyn Source>,
    sink: Option<Arc<dyn DeadLetterSink>>,
    plan: ConsumerPlan,
    retention: Finding,
}

impl Consumer {
    /// Deliveries that are received and not settled, for each handler that may run.
    pub const IN_FLIGHT_PER_HANDLER: usize = 2;
    /// Handlers that run at the same time by default.
    pub const CONCURRENCY: usize = 64;
    /// How long a shutdown waits for running handlers by default.
    pub const GRACE: Duration = Duration::from_secs(30);

    /// Begins a consumer of `source`.
    pub fn builder(source: impl Source) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::new(source))
    }

    /// Pauses and stops this consumer while it runs.
    #[must_use]
    pub fn control(&self) -> ConsumerControl {
        self.control.clone()
    }

    /// Checks the settings of the broker and the dead-letter sink, as [`run_until`](Self::run_until) does before the
    /// first message.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached.
    pub async fn check(&self) -> Result<Vec<Finding>> {
        let mut findings = vec![self.checks.retention.clone()];
        findings.extend(self.checks.source.check(&self.checks.plan).await?);
        if let Some(sink) = &self.checks.sink {
            findings.push(match sink.check().await {
                Ok(()) => Finding::good(format!("dead letters: {} is reachable", sink.name())),
                Err(error) => Finding::bad(
                    format!("dead letters: {}: {error}", sink.name()),
                    "make the dead-letter sink reachable, or choose another",
                ),
            });
        }
        Ok(findings)
    }

    /// Receives and handles messages until `shutdown` completes or the source ends, then drains: running handlers
    /// finish, and messages that wait go back to the broker.
    ///
    /// # Errors
    ///
    /// When a check finds something bad, before the first message; or when an event of an unknown type stops the
    /// consumer.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<ConsumerReport> {
        for finding in self.check().await? {
            let fix = finding.fix.as_deref().unwrap_or_default();
            match finding.level {
                Level::Good => tracing::info!("{}", finding.what),
                Level::Warning => tracing::warn!("{}; {fix}", finding.what),
                Level::Bad => return Err(Error::invalid(format!("{}; {fix}", finding.what))),
            }
        }
        let runtime = self.control.0.clone();
        let mut running = std::pin::pin!(runtime.run(self.pipeline));
        tokio::select! {
            report = &mut running => report,
            () = shutdown => {
                self.control.stop();
                running.await
            }
        }
    }

    /// [`run_until`](Self::run_until) without a shutdown: until the source ends or [`ConsumerControl::stop`].
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<ConsumerReport> {
        self.run_until(std::future::pending()).await
    }
}

/// Settings of a [`Consumer`], with defaults that are safe.
#[must_use]
pub struct ConsumerBuilder {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) engine: Option<Engine>,
    /// True if the engine is of this consumer alone, and ends with it.
    pub(crate) owns_engine: bool,
    pub(crate) strategy: KeyStrategy,
    pub(crate) retention: Retention,
    pub(crate) allows_short_retention: bool,
    pub(crate) lease: Duration,
    pub(crate) max_run: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) on_lost_owner: OnLostOwner,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetterSink>>,
    pub(crate) drops_dead_letters: bool,
    pub(crate) concurrency: usize,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) mode: Mode,
    pub(crate) order: Option<Order>,
    pub(crate) on_dead_letter: OnDeadLetter,
    pub(crate) on_mismatch: OnMismatch,
    pub(crate) unknown_type: UnknownType,
    pub(crate) max_bytes: usize,
    pub(crate) check_json: bool,
    pub(crate) backoff: Backoff,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) classifier: Arc<dyn Classifier>,
    pub(crate) grace: Duration,
    pub(crate) logs_errors: bool,
    assembly: Option<Box<dyn Assembly>>,
}

impl ConsumerBuilder {
    fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            namespace: "default".to_owned(),
            name: None,
            engine: None,
            owns_engine: false,
            strategy: KeyStrategy::message_id(),
            retention: Retention::Auto,
            allows_short_retention: false,
            lease: Policy::LEASE,
            max_run: Policy::MAX_RUN,
            max_attempts: Policy::EVENT_ATTEMPTS,
            on_lost_owner: OnLostOwner::Rerun,
            dead_letters: None,
            drops_dead_letters: false,
            concurrency: Consumer::CONCURRENCY,
            max_in_flight: None,
            mode: Mode::default(),
            order: None,
            on_dead_letter: OnDeadLetter::default(),
            on_mismatch: OnMismatch::default(),
            unknown_type: UnknownType::default(),
            max_bytes: ValidationLayer::MAX_BYTES,
            check_json: false,
            backoff: Backoff::MESSAGES,
            breaker: CircuitBreaker::default(),
            classifier: Arc::new(DefaultClassifier),
            grace: Consumer::GRACE,
            logs_errors: false,
            assembly: None,
        }
    }

    /// The store in which events are claimed and outcomes recorded. All processes of a consumer share it.
    ///
    /// # Errors
    ///
    /// When the store refuses the engine's settings.
    pub fn store(self, store: impl Store) -> Result<Self> {
        let engine = Engine::builder().store(store).build()?;
        Ok(Self { engine: Some(engine), owns_engine: true, ..self })
    }

    /// An engine that exists already, with its store, hash secret and labels. Its policy is replaced by the one of
    /// this consumer. It is not shut down with the consumer.
    pub fn engine(self, engine: Engine) -> Self {
        Self { engine: Some(engine), owns_engine: false, ..self }
    }

    /// The name space of the events' keys. Consumers of one store with different name spaces do not see each other's
    /// events. `default` if it is not set.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// The name of the consumer, part of every key: two consumers with different names both handle an event. The name
    /// of the source if it is not set.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// How the id of an event is found. The message id if it is not set, see [`Event::event_id`].
    pub fn key(self, strategy: KeyStrategy) -> Self {
        Self { strategy, ..self }
    }

    /// How long an outcome is kept.
    pub fn retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// Allows a retention that is shorter than the time in which the source may deliver a message again.
    pub fn allow_short_retention(self) -> Self {
        Self { allows_short_retention: true, ..self }
    }

    /// How long an owner holds an event without a renewal.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// How long a handler may run before its lease is no longer renewed.
    pub fn max_run(self, max_run: Duration) -> Self {
        Self { max_run, ..self }
    }

    /// Attempts at an event before it becomes a dead letter. 5 if it is not set.
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts, ..self }
    }

    /// What happens to an event whose owner is lost: it runs again, or it is held for an operator.
    pub fn on_lost_owner(self, on_lost_owner: OnLostOwner) -> Self {
        Self { on_lost_owner, ..self }
    }

    /// Where messages go that will not be processed. Required, unless they are dropped on purpose.
    pub fn dead_letters(self, sink: impl DeadLetterSink) -> Self {
        Self { dead_letters: Some(Arc::new(sink)), drops_dead_letters: false, ..self }
    }

    /// Logs and counts messages that will not be processed, and keeps no copy of them.
    pub fn drop_dead_letters(self) -> Self {
        Self { dead_letters: None, drops_dead_letters: true, ..self }
    }

    /// Handlers that run at the same time. 64 if it is not set.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// Messages that are received and not settled. Twice the concurrency if it is not set.
    pub fn max_in_flight(self, max_in_flight: usize) -> Self {
        Self { max_in_flight: Some(max_in_flight), ..self }
    }

    /// What is recorded of an event.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Whether later events of an ordering key wait for one that is tried again.
    pub fn order(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }

    /// What happens to the ordering key of an event that became a dead letter.
    pub fn on_dead_letter(self, on_dead_letter: OnDeadLetter) -> Self {
        Self { on_dead_letter, ..self }
    }

    /// What happens to an event that has the id of an earlier event and another payload.
    pub fn on_mismatch(self, on_mismatch: OnMismatch) -> Self {
        Self { on_mismatch, ..self }
    }

    /// What happens to events that no handler takes.
    pub fn unknown_type(self, unknown_type: UnknownType) -> Self {
        Self { unknown_type, ..self }
    }

    /// The largest payload that is accepted. 1 MiB if it is not set.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Refuses data that is declared to be JSON and is not, before the handler. Not needed for handlers that read JSON.
    pub fn check_json(self) -> Self {
        Self { check_json: true, ..self }
    }

    /// Pauses between attempts at an event.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// The circuit breaker that stops attempts, and pauses the source, while the handler keeps failing.
    pub fn circuit_breaker(self, breaker: CircuitBreaker) -> Self {
        Self { breaker, ..self }
    }

    /// Which errors of a handler are final, where the error does not say so itself.
    pub fn classifier(self, classifier: impl Classifier) -> Self {
        Self { classifier: Arc::new(classifier), ..self }
    }

    /// Logs the texts of errors. They are left out otherwise, because an error of a handler may quote the event.
    pub fn log_errors(self) -> Self {
        Self { logs_errors: true, ..self }
    }

    /// How long a shutdown waits for running handlers. 30 s if it is not set.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Handles events with a closure, see [`handler_fn`].
    pub fn handler<T, R, E, F, Fut>(self, function: F) -> Self
    where
        F: Fn(Event<T>, EventContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send,
        T: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: Into<WorkError>,
    {
        self.handle_with(handler_fn(function))
    }

    /// Handles events with a [`Handler`], such as a [`Router`](crate::Router).
    pub fn handle_with(self, handler: impl Handler) -> Self {
        self.with_assembly(EngineAssembly(handler))
    }

    /// Handles events in transactions of `inbox`: effect and record commit together, with no lease and no store.
    #[cfg(feature = "inbox")]
    pub fn transactional<P>(
        self,
        inbox: semel_inbox::PgInbox<P>,
        handler: impl Handler<P::Tx>,
    ) -> Self
    where
        P: semel_inbox::InboxPool + Clone + 'static,
        P::Tx: 'static,
    {
        self.with_assembly(TransactionAssembly { inbox, handler, batch: 1 })
    }

    /// Handles up to `batch` events in one transaction of `inbox`, each under a savepoint of its own. Many times faster
    /// than a transaction for each event. Events of one ordering key are never in the same batch, and order is relaxed: the
    /// broker delivers an event that is tried again later, and others of its key pass it.
    #[cfg(feature = "inbox")]
    pub fn transactional_batch<P>(
        self,
        inbox: semel_inbox::PgInbox<P>,
        handler: impl Handler<P::Tx>,
        batch: usize,
    ) -> Self
    where
        P: semel_inbox::InboxPool + Clone + 'static,
        P::Tx: 'static,
    {
        self.with_assembly(TransactionAssembly { inbox, handler, batch: batch.max(1) })
    }

    pub(crate) fn with_assembly(self, assembly: impl Assembly) -> Self {
        Self { assembly: Some(Box::new(assembly)), ..self }
    }

    /// The consumer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](semel_core::ErrorKind::Invalid) with the setting that is missing or wrong, and its fix.
    pub fn build(mut self) -> Result<Consumer> {
        let Some(assembly) = self.assembly.take() else {
            return Err(Error::invalid("consumer: no handler; call handler() or handle_with()"));
        };
        self.check_settings()?;
        assembly.check(&self)?;
        let info = self.source.info();
        let (retention, finding) =
            self.retention.resolve(info.redelivery_window, self.allows_short_retention)?;
        let engine = match &self.engine {
            Some(engine) => Some(engine.with_policy(self.policy(retention))?),
            None => None,
        };
        let (paused, stopping) = (watch::Sender::new(false), watch::Sender::new(false));
        let draining = watch::Sender::new(false);
        let metrics = ConsumerMetrics::new(&self.consumer_name(&info));
        let stages = Stages {
            scope: Scope::new(&*self.namespace, Principal::Anonymous, self.consumer_name(&info)),
            engine: engine.clone(),
            // A parked key stays parked until an operator opens it.
            parking: match &engine {
                Some(engine) => Some(engine.with_policy(self.policy(Policy::MAX_RETENTION))?),
                None => None,
            },
            dead_letters: DeadLetters {
                sink: self.dead_letters.clone(),
                consumer: self.consumer_name(&info).into(),
                source: info.name.as_str().into(),
                logs_errors: self.logs_errors,
            },
            draining: draining.subscribe(),
            metrics: metrics.clone(),
            builder: &self,
        };
        let pipeline = assembly.assemble(&stages)?;
        let runtime = Runtime::new(RuntimeParts {
            source: self.source.clone(),
            engine: engine.filter(|_| self.owns_engine),
            breaker: self.breaker.clone(),
            metrics,
            dead_letters: stages.dead_letters.clone(),
            backoff: self.backoff,
            workers: self.workers(pipeline.batch()),
            batch: pipeline.batch(),
            grace: self.grace,
            max_in_flight: self.in_flight(pipeline.batch()),
            concurrency: self.concurrency.saturating_mul(pipeline.batch()),
            paused,
            stopping,
            draining,
        });
        let plan = ConsumerPlan {
            concurrency: self.concurrency,
            max_in_flight: self.in_flight(pipeline.batch()),
            max_attempts: Some(self.max_attempts),
            lease: self.lease,
        };
        let sink = self.dead_letters.clone();
        let checks = StartupChecks { source: self.source, sink, plan, retention: finding };
        Ok(Consumer { control: ConsumerControl(Arc::new(runtime)), pipeline, checks })
    }

    fn consumer_name(&self, info: &SourceInfo) -> String {
        self.name.clone().unwrap_or_else(|| info.name.clone())
    }

    fn in_flight(&self, batch: usize) -> usize {
        let default = self.concurrency.max(batch).saturating_mul(Consumer::IN_FLIGHT_PER_HANDLER);
        self.max_in_flight.unwrap_or(default).max(self.concurrency)
    }

    /// Deliveries that wait to be tried again need a worker, and hold no place of a handler.
    fn workers(&self, batch: usize) -> usize {
        if batch == 1 { self.in_flight(batch) } else { self.concurrency }
    }

    fn check_settings(&self) -> Result<()> {
        let zero = [
            ("concurrency", self.concurrency == 0),
            ("max_in_flight", self.max_in_flight == Some(0)),
            ("max_attempts", self.max_attempts == 0),
            ("max_bytes", self.max_bytes == 0),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, is_zero)| *is_zero) {
            return Err(Error::invalid(format!("consumer: {name} is 0; it must be at least 1")));
        }
        if self.dead_letters.is_none() && !self.drops_dead_letters {
            return Err(Error::invalid(
                "consumer: no dead-letter sink; call dead_letters(), or drop_dead_letters() to keep no copy of \
                 messages that cannot be processed",
            ));
        }
        Ok(())
    }

    fn policy(&self, retention: Duration) -> Policy {
        Policy::events()
            // A failed event that comes again must not run again either.
            .retention(retention)
            .failure_retention(retention)
            .lease(self.lease)
            .max_run(self.max_run.max(self.lease))
            .max_attempts(self.max_attempts)
            .on_lost_owner(self.on_lost_owner)
            .wait(WAIT)
    }
}

/// How long a message waits for another copy of its event before the broker gets it back.
const WAIT: Duration = Duration::from_millis(500);

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("source", &self.source)
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

/// What the stages of a pipeline are made of.
pub(crate) struct Stages<'a> {
    pub(crate) builder: &'a ConsumerBuilder,
    pub(crate) scope: Scope,
    pub(crate) engine: Option<Engine>,
    /// The same engine, with a policy that keeps records as long as possible.
    pub(crate) parking: Option<Engine>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) metrics: ConsumerMetrics,
}
