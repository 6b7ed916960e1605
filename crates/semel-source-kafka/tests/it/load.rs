//! Whole consumers under faults: every event has one outcome, and no committed offset passes one that has none.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_consumer::{
    Consumer, ConsumerControl, Event, EventContext, Message,
    dead_letter::MemoryDeadLetters,
    pipeline::{Backoff, CircuitBreaker},
};
use semel_core::{MemoryStore, WorkError};
use tokio::task::JoinHandle;

use crate::{
    common::{PARTITIONS, TestTopic, until},
    watcher::{Settled, WatchedSource, Watcher},
};

/// What the handlers of all processes have done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    store: MemoryStore,
    letters: MemoryDeadLetters,
    runs: Arc<Mutex<HashMap<String, usize>>>,
    settled: Arc<Settled>,
}

/// A running consumer.
pub(crate) struct RunningConsumer {
    control: ConsumerControl,
    task: JoinHandle<()>,
}

impl RunningConsumer {
    pub(crate) async fn stop(self) {
        self.control.stop();
        self.task.await.unwrap();
    }
}

impl Ledger {
    /// Watches the committed offsets of all partitions. Each may only pass what the consumers have settled since.
    pub(crate) fn watch(&mut self, topic: &TestTopic) -> Watcher {
        self.settled = Arc::default();
        Watcher::start(topic, PARTITIONS, &self.settled)
    }

    /// Starts a consumer. Every tenth event fails for good, and others fail at first.
    pub(crate) async fn start(&self, topic: &TestTopic) -> RunningConsumer {
        let source = topic.source().await;
        let source = WatchedSource { source, settled: self.settled.clone() };
        let runs = self.runs.clone();
        let handler = move |event: Event<String>, context: EventContext| {
            let runs = runs.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..3))).await;
                let number: u32 = event.data.parse().unwrap();
                if number % 10 == 3 && context.attempt() == 1 {
                    return Err(WorkError::retry("the first attempt fails"));
                }
                *runs.lock().entry(event.data).or_default() += 1;
                match number % 10 {
                    7 => Err(WorkError::failure("refused", "the test refuses this event")),
                    _ => Ok(()),
                }
            }
        };
        let consumer = Consumer::builder(source)
            .name("load")
            .store(self.store.clone())
            .unwrap()
            .dead_letters(self.letters.clone())
            .backoff(Backoff { first: Duration::from_millis(20), max: Duration::from_millis(100) })
            .circuit_breaker(CircuitBreaker::new(u32::MAX, CircuitBreaker::PAUSES))
            .max_attempts(100)
            .concurrency(16)
            .handler(handler)
            .build()
            .unwrap();
        let control = consumer.control();
        let task = tokio::spawn(async move { consumer.run().await.map(drop).unwrap() });
        RunningConsumer { control, task }
    }

    /// How often messages were given back or rejected, since the watch began.
    pub(crate) fn not_acknowledged(&self) -> usize {
        self.settled.others()
    }

    /// Events that ran.
    pub(crate) fn ran(&self) -> usize {
        self.runs.lock().len()
    }

    /// Waits until all records of the topic are committed, and asserts that each event ran once.
    pub(crate) async fn finish(&self, topic: &TestTopic, events: u32, records: i64) {
        let all =
            async || topic.committed().into_iter().filter(|it| *it > 0).sum::<i64>() == records;
        until("all records are committed", all).await;
        let runs = self.runs.lock();
        assert_eq!(runs.len(), events as usize, "every event ran");
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "no event ran twice: {twice:?}");
        let refused = events / 10 + u32::from(events % 10 > 7);
        assert_eq!(self.letters.letters().len(), refused as usize, "each has one dead letter");
    }
}

/// Publishes events with these numbers, three in ten of them twice. Returns how many records that are.
pub(crate) async fn publish(topic: &TestTopic, numbers: std::ops::Range<u32>) -> i64 {
    let mut records = 0;
    for number in numbers {
        let message = Message::new("", format!("\"{number}\""))
            .with_header("event_id", number.to_string())
            .with_ordering_key(format!("key {}", number % 20));
        for _ in 0..if number % 10 < 3 { 2 } else { 1 } {
            topic.publish(&message).await;
            records += 1;
        }
    }
    records
}
