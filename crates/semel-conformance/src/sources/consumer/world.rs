//! All that the processes of one promise share: the queue, the store, the dead letters and the journal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_consumer::{
    Consumer, ConsumerBuilder, Message,
    dead_letter::{DeadLetter, MemoryDeadLetters},
    pipeline::{Backoff, CircuitBreaker},
};
use semel_core::{MemoryStore, WorkError};
use tokio::sync::oneshot;

use super::{
    Entry, Journal, Process, Run, Step,
    handler::{EVENT_ID, Identity, JournalHandler},
    process::Started,
    watched::{WatchedDeadLetters, WatchedSource},
    watched_store::WatchedStore,
};
use crate::{
    breakable::{Breakable, Switch},
    sources::SourceFixture,
};

/// The lease of events. A killed process holds its events for this long.
pub(super) const LEASE: Duration = Duration::from_millis(1500);
/// The first pause between two attempts.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The world of one promise.
pub(super) struct World {
    pub(super) fixture: Arc<dyn SourceFixture>,
    pub(super) journal: Arc<Journal>,
    /// Takes the store down while it is set.
    pub(super) store_down: Switch,
    /// Takes the dead-letter sink down while it is set.
    pub(super) sink_down: Switch,
    pub(super) store: MemoryStore,
    letters: MemoryDeadLetters,
    lost: Arc<AtomicU32>,
}

impl World {
    pub(super) fn new(fixture: Arc<dyn SourceFixture>) -> Self {
        Self {
            fixture,
            journal: Arc::default(),
            store_down: Switch::default(),
            sink_down: Switch::default(),
            store: MemoryStore::new(),
            letters: MemoryDeadLetters::new(),
            lost: Arc::default(),
        }
    }

    /// Publishes an event for each id, in this order.
    pub(super) async fn publish(&self, ids: impl IntoIterator<Item = impl AsRef<str>>) {
        for id in ids {
            self.fixture.publish(event(id.as_ref())).await;
        }
    }

    /// Publishes an event with an ordering key.
    pub(super) async fn publish_with_key(&self, id: &str, key: &str) {
        self.fixture.publish(event(id).with_ordering_key(key)).await;
    }

    /// Loses the next settlements on their way to the broker.
    pub(super) fn lose_settlements(&self, count: u32) {
        self.lost.store(count, SeqCst);
    }

    pub(super) fn letters(&self) -> Vec<DeadLetter> {
        self.letters.letters()
    }

    /// Starts a process with default settings.
    pub(super) async fn start<F, Fut>(&self, handler: F) -> Process
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        self.start_with(|builder| builder, handler).await
    }

    /// Starts a process with other settings.
    pub(super) async fn start_with<F, Fut>(
        &self,
        settings: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder + Send + 'static,
        function: F,
    ) -> Process
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        let (dead, journal) = (Switch::default(), self.journal.clone());
        let process =
            Identity { number: journal.add_process(dead.clone()), dead: dead.clone(), journal };
        let store =
            Breakable::new(Breakable::new(self.store.clone(), self.store_down.clone()), dead);
        let store = WatchedStore { store, process: process.clone() };
        let letters = WatchedDeadLetters {
            letters: self.letters.clone(),
            process: process.clone(),
            down: self.sink_down.clone(),
        };
        let (fixture, lost, identity) = (self.fixture.clone(), self.lost.clone(), process.clone());
        let start = async move {
            let source =
                WatchedSource { source: fixture.open().await, process: process.clone(), lost };
            let builder = settings(defaults(Consumer::builder(source), fixture.patience()));
            let builder =
                builder.store(store).expect("a store for the suite").dead_letters(letters);
            let consumer = builder.handle_with(JournalHandler { process, function }).build();
            let consumer = consumer.expect("valid settings");
            let (control, (report, ended)) = (consumer.control(), oneshot::channel());
            tokio::spawn(async move { report.send(consumer.run().await) });
            (control, ended) as Started
        };
        Process::spawn(identity, start).await
    }

    /// Waits until this many entries match.
    pub(super) async fn until(&self, what: &str, count: usize, matches: impl Fn(&Entry) -> bool) {
        self.journal.until(self.fixture.patience(), what, count, matches).await;
    }

    /// Waits until this many settlements that are final were sent.
    pub(super) async fn until_settled(&self, count: usize) {
        self.until("a message is settled for good", count, |entry| is_final(&entry.step)).await;
    }

    /// Waits until `process` has been killed by [`Journal::kill_at`], and closes its connections.
    pub(super) async fn until_dead(&self, process: Process) {
        let dead = process.identity.dead.clone();
        let patience = self.fixture.patience();
        let died = tokio::time::timeout(patience, async {
            while !dead.is_set() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(
            died.await.is_ok(),
            "the process did not come to the step at which it is killed\n{:?}",
            self.journal
        );
        process.kill();
    }

    /// Shuts a process down, and asserts that the broker has no message left for another one.
    pub(super) async fn stop(&self, process: Process) {
        let report = process.stop(self.fixture.patience()).await;
        assert_eq!(report.cut_off, 0, "a shutdown waits for handlers");
    }
}

fn defaults(builder: ConsumerBuilder, patience: Duration) -> ConsumerBuilder {
    builder
        .namespace("conformance")
        .name("conformance")
        .lease(LEASE)
        .concurrency(8)
        .grace(patience)
        .backoff(Backoff { first: FIRST_PAUSE, max: FIRST_PAUSE * 4 })
        // Failures are part of the promises, and must not pause the source.
        .circuit_breaker(CircuitBreaker::new(u32::MAX, CircuitBreaker::PAUSES))
}

fn event(id: &str) -> Message {
    Message::new("orders", format!("the event {id}")).with_header(EVENT_ID, id.to_owned())
}

/// True for a settlement after which the message must not come again.
pub(super) const fn is_final(step: &Step) -> bool {
    matches!(step, Step::Acked | Step::Rejected)
}
