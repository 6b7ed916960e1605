//! A harness for tests of your handlers: publish, duplicate, kill, assert. For plain `#[test]` functions: it has its own
//! runtimes.
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU32, Ordering::SeqCst}}, time::Duration};
//! use semel_consumer::{Event, EventContext, Message, testing::TestHarness};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let harness = TestHarness::new();
//! let number = harness.publish(Message::new("orders", r#"{"cents":500}"#).with_id("order-1"));
//! harness.duplicate(number);
//!
//! let charges = Arc::new(AtomicU32::new(0));
//! let counted = charges.clone();
//! let consumer = harness.start(|builder| {
//!     builder.handler(move |_: Event<serde_json::Value>, _: EventContext| {
//!         let charges = counted.clone();
//!         async move { Ok::<_, std::io::Error>(charges.fetch_add(1, SeqCst)) }
//!     })
//! })?;
//! harness.until_settled(Duration::from_secs(10))?;
//! consumer.stop()?;
//!
//! assert_eq!(charges.load(SeqCst), 1);
//! assert!(harness.outcome("order-1")?.is_some_and(|outcome| outcome.is_success()));
//! # Ok(()) }
//! ```

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use semel_core::{
    Error, ErrorKind, KeySource, KeyStrategy, MemoryStore, Outcome, Principal, Result, Scope, Store,
};
use tokio::{runtime, task::JoinHandle};

use crate::{
    consumer::{Consumer, ConsumerBuilder},
    dead_letter::{DeadLetter, MemoryDeadLetters},
    memory::{MemorySource, SettledMessage},
    message::Message,
    pipeline::Backoff,
    runtime::{ConsumerControl, ConsumerReport},
};

const NAMESPACE: &str = "test";
const CONSUMER: &str = "consumer";
/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// A broker, a store and a dead-letter sink in memory. They outlive the consumers that a test starts and kills. Clones
/// are the same.
#[derive(Clone)]
pub struct TestHarness {
    source: MemorySource,
    store: Arc<MemoryStore>,
    dead_letters: MemoryDeadLetters,
}

impl TestHarness {
    /// The lease of a handler: short, so that the events of a killed consumer run again soon.
    pub const LEASE: Duration = Duration::from_millis(500);
    /// How long a delivery of a killed consumer stays out.
    pub const ACK_DEADLINE: Duration = Duration::from_secs(1);
    /// Pauses between attempts.
    pub const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), max: Duration::from_millis(100) };

    /// Everything empty.
    #[must_use]
    pub fn new() -> Self {
        Self {
            source: MemorySource::with_ack_deadline(Self::ACK_DEADLINE),
            store: Arc::new(MemoryStore::new()),
            dead_letters: MemoryDeadLetters::new(),
        }
    }

    /// The broker, to inject faults.
    #[must_use]
    pub fn source(&self) -> &MemorySource {
        &self.source
    }

    /// Adds a message, and returns its number.
    pub fn publish(&self, message: Message) -> u64 {
        self.source.publish(message)
    }

    /// Adds another copy of a message. `None` if there is no such message.
    pub fn duplicate(&self, number: u64) -> Option<u64> {
        self.source.duplicate(number)
    }

    /// Starts a consumer of all that is published. `configure` sets at least a handler.
    ///
    /// # Errors
    ///
    /// What the builder refuses.
    pub fn start(
        &self,
        configure: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
    ) -> Result<RunningConsumer> {
        let builder = Consumer::builder(self.source.clone())
            .namespace(NAMESPACE)
            .name(CONSUMER)
            .store(self.store.clone())?
            .dead_letters(self.dead_letters.clone())
            .lease(Self::LEASE)
            .backoff(Self::BACKOFF);
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| no_runtime(&error))?;
        let consumer = {
            let _entered = runtime.enter();
            configure(builder).build()?
        };
        let control = consumer.control();
        let task = runtime.spawn(consumer.run());
        Ok(RunningConsumer { runtime: Some(runtime), control, task })
    }

    /// Waits until every message is acknowledged or a dead letter.
    ///
    /// # Errors
    ///
    /// When this takes longer than `timeout`.
    pub fn until_settled(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while self.source.open() > 0 {
            if Instant::now() > deadline {
                let what =
                    format!("{} messages are not settled after {timeout:?}", self.source.open());
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// What was settled and how, in order.
    #[must_use]
    pub fn settled(&self) -> Vec<SettledMessage> {
        self.source.settled()
    }

    /// The dead letters, oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.dead_letters.letters()
    }

    /// The recorded outcome of the event with this message id; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the id can be no key.
    pub fn outcome(&self, message_id: &str) -> Result<Option<Outcome>> {
        let source = KeySource { message_id: Some(message_id), ..KeySource::default() };
        let scope = Scope::new(NAMESPACE, Principal::Anonymous, CONSUMER);
        let key = scope.key(KeyStrategy::message_id().render(&source)?)?.hash(None);
        let found = block_on(async { self.store.get(&key).await })??;
        Ok(found.and_then(|it| it.record.outcome).map(|outcome| (*outcome).clone()))
    }
}

impl Default for TestHarness {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHarness").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A consumer that runs in a runtime of its own. Dropping it kills it.
#[derive(Debug)]
pub struct RunningConsumer {
    /// `None` once it was killed or stopped.
    runtime: Option<runtime::Runtime>,
    control: ConsumerControl,
    task: JoinHandle<Result<ConsumerReport>>,
}

impl RunningConsumer {
    /// Pauses and resumes the consumer.
    #[must_use]
    pub fn control(&self) -> &ConsumerControl {
        &self.control
    }

    /// Ends the consumer as the loss of its process does: handlers stop at their next await, and nothing is settled.
    pub fn kill(mut self) {
        self.end();
    }

    /// Shuts the consumer down: running handlers finish, and waiting messages go back to the broker.
    ///
    /// # Errors
    ///
    /// What stopped the consumer before.
    pub fn stop(mut self) -> Result<ConsumerReport> {
        self.control.stop();
        let task = &mut self.task;
        let report = block_on(task);
        self.end();
        report?.unwrap_or_else(|_panic| {
            Err(Error::new(ErrorKind::Unavailable, "the consumer panicked"))
        })
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for RunningConsumer {
    fn drop(&mut self) {
        self.end();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| no_runtime(&error))?.block_on(future))
}

fn no_runtime(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot start a runtime: {error}"))
}
