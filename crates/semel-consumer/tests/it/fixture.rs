//! What the tests share: a consumer in memory that ends when all its messages are settled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use semel_consumer::{
    Consumer, ConsumerBuilder, Event, EventContext, Message,
    dead_letter::{DeadLetter, MemoryDeadLetters},
    memory::{MemorySettlement, MemorySource},
    pipeline::Backoff,
};
use semel_core::{MemoryStore, Store, WorkError};
use serde_json::Value;

pub(crate) const SHORT: Backoff =
    Backoff { first: Duration::from_millis(5), max: Duration::from_millis(20) };

/// A broker, a store and a dead-letter sink that outlive a consumer.
pub(crate) struct Scene {
    pub(crate) source: MemorySource,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) dead_letters: MemoryDeadLetters,
    runs: Arc<AtomicU32>,
}

impl Scene {
    pub(crate) fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        let source = MemorySource::new();
        for message in messages {
            source.publish(message);
        }
        source.end();
        Self {
            source,
            store: Arc::new(MemoryStore::new()),
            dead_letters: MemoryDeadLetters::new(),
            runs: Arc::default(),
        }
    }

    pub(crate) fn builder(&self) -> ConsumerBuilder {
        self.builder_over(self.store.clone())
    }

    pub(crate) fn builder_over(&self, store: impl Store) -> ConsumerBuilder {
        Consumer::builder(self.source.clone())
            .name("tests")
            .store(store)
            .unwrap()
            .dead_letters(self.dead_letters.clone())
            .backoff(SHORT)
    }

    /// A handler that counts its runs and then does what `end` says.
    pub(crate) fn handler<F>(
        &self,
        end: F,
    ) -> impl Fn(Event<Value>, EventContext) -> std::future::Ready<Result<Value, WorkError>> + use<F>
    where
        F: Fn(&Event<Value>, &EventContext) -> Result<Value, WorkError> + Send + Sync + 'static,
    {
        let runs = self.runs.clone();
        move |event, context| {
            runs.fetch_add(1, SeqCst);
            std::future::ready(end(&event, &context))
        }
    }

    pub(crate) fn succeeds(
        &self,
    ) -> impl Fn(Event<Value>, EventContext) -> std::future::Ready<Result<Value, WorkError>> + use<>
    {
        self.handler(|_, _| Ok(Value::from("done")))
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    pub(crate) fn letters(&self) -> Vec<DeadLetter> {
        self.dead_letters.letters()
    }

    pub(crate) fn acks(&self) -> usize {
        self.source.settled().iter().filter(|it| it.how == MemorySettlement::Acked).count()
    }
}

/// Runs a consumer until all its messages are settled.
pub(crate) async fn run(builder: ConsumerBuilder) {
    builder.build().unwrap().run().await.unwrap();
}

pub(crate) fn message(id: &str) -> Message {
    Message::new("orders", r#"{"cents":500}"#).with_id(id)
}
