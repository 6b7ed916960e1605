//! Watches the committed offsets of a group while it works.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};
use semel_consumer::{ConsumerPlan, Delivery, Message, Settlement, Source, SourceInfo};
use semel_core::{Finding, Outcome, Result};
use semel_source_kafka::KafkaSource;

use crate::common::{PATIENCE, TestTopic, client};

const LOOK: Duration = Duration::from_millis(2);

/// The records of a topic that were settled for good, by partition and offset.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    records: Mutex<HashMap<i32, HashSet<i64>>>,
    /// Settlements other than an acknowledgement.
    others: AtomicUsize,
}

impl Settled {
    /// Notes that a message is about to be settled: before the settlement, so that the offset is never ahead of it.
    pub(crate) fn add(&self, message: &Message) {
        let mut parts = message.position.rsplit('/');
        let offset = parts.next().unwrap().parse().unwrap();
        let partition = parts.next().unwrap().parse().unwrap();
        self.records.lock().entry(partition).or_default().insert(offset);
    }

    /// How often a message was given back or rejected. A duplicate is acknowledged.
    pub(crate) fn others(&self) -> usize {
        self.others.load(SeqCst)
    }

    /// True if all records before `next` are settled. The topic has no gaps.
    fn covers(&self, partition: i32, next: i64) -> bool {
        let settled = self.records.lock();
        let settled = settled.get(&partition);
        (0..next).all(|offset| settled.is_some_and(|settled| settled.contains(&offset)))
    }
}

/// A source that notes what is settled for good, before it is.
#[derive(Debug)]
pub(crate) struct WatchedSource {
    pub(crate) source: KafkaSource,
    pub(crate) settled: Arc<Settled>,
}

#[async_trait]
impl Source for WatchedSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        let watched = |delivery: Delivery| {
            let (message, settlement) = delivery.into_parts();
            let settled = self.settled.clone();
            let watched = WatchedSettlement { settlement, message: message.clone(), settled };
            Delivery::new(message, watched)
        };
        Ok(self.source.receive(max).await?.into_iter().map(watched).collect())
    }

    fn info(&self) -> SourceInfo {
        self.source.info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        self.source.lag().await
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.source.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        self.source.check(plan).await
    }

    async fn close(&self) -> Result<()> {
        self.source.close().await
    }
}

struct WatchedSettlement {
    settlement: Arc<dyn Settlement>,
    message: Arc<Message>,
    settled: Arc<Settled>,
}

#[async_trait]
impl Settlement for WatchedSettlement {
    async fn ack(&self) -> Result<()> {
        self.settled.add(&self.message);
        self.settlement.ack().await
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        self.settled.others.fetch_add(1, SeqCst);
        self.settlement.nack(delay).await
    }

    async fn reject(&self, reason: &str) -> Result<()> {
        self.settled.others.fetch_add(1, SeqCst);
        self.settled.add(&self.message);
        self.settlement.reject(reason).await
    }

    async fn extend(&self) -> Result<()> {
        self.settlement.extend().await
    }
}

/// Reads the committed offsets again and again on a thread of its own, and asserts that none passes a record that is not
/// settled, and that none goes back.
pub(crate) struct Watcher {
    is_ended: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<i64>)>,
}

impl Watcher {
    pub(crate) fn start(topic: &TestTopic, partitions: i32, settled: &Arc<Settled>) -> Self {
        let consumer: BaseConsumer =
            client(&topic.brokers).set("group.id", &topic.group).create().unwrap();
        let (name, settled) = (topic.name.clone(), settled.clone());
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let thread = thread::spawn(move || {
            let mut last = vec![-1; usize::try_from(partitions).unwrap()];
            let mut looks = 0;
            let mut answered_at = Instant::now();
            // One more look after the end.
            let mut is_last = false;
            while !is_last {
                let is_ended = ended.load(SeqCst);
                let Some(now) = committed(&consumer, &name, partitions) else {
                    assert!(answered_at.elapsed() < PATIENCE, "no broker answers");
                    sleep(LOOK);
                    continue;
                };
                (is_last, answered_at) = (is_ended, Instant::now());
                looks += 1;
                for (partition, (next, before)) in (0..).zip(now.iter().zip(&last)) {
                    assert!(
                        next >= before,
                        "{name}/{partition}: {before} was committed, and then {next}"
                    );
                    assert!(
                        settled.covers(partition, *next),
                        "{name}/{partition}: {next} is committed, and an earlier record is not settled"
                    );
                }
                last = now;
                sleep(LOOK);
            }
            (looks, last)
        });
        Self { is_ended, thread }
    }

    /// Ends the watch. Returns the last committed offsets.
    pub(crate) fn end(self) -> Vec<i64> {
        self.is_ended.store(true, SeqCst);
        let (looks, last) = self.thread.join().unwrap();
        assert!(looks > 5, "it has looked {looks} times");
        last
    }
}

/// The committed offsets. `None` while no broker answers.
fn committed(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Option<Vec<i64>> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range(topic, 0, partitions - 1);
    let committed = consumer.committed_offsets(asked, Duration::from_secs(2)).ok()?;
    let elements = committed.elements();
    let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { -1 };
    elements.iter().map(|it| it.error().ok().map(|()| offset(it.offset()))).collect()
}
