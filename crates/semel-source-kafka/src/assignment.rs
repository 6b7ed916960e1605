//! The partitions that this consumer has, and what happens in a rebalance.
//!
//! The driver calls back on the thread that polls. A partition that is revoked first waits for its running handlers,
//! for a bounded time; then its offset is committed, and it ends. What was not done by then is handed to another
//! consumer, and settling it here changes nothing any more.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rdkafka::{
    ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::{KafkaError, KafkaResult},
    types::RDKafkaErrorCode,
};

use crate::{client::Reports, fetch_queue::FetchQueue, partition::Partition};

/// How often a partition that is revoked looks whether its handlers have ended.
const DRAIN_CHECK: Duration = Duration::from_millis(5);

/// How long reading the committed offsets may take.
const CONFIRM: Duration = Duration::from_secs(2);

/// By topic and number.
type Partitions = BTreeMap<(Arc<str>, i32), Arc<Partition>>;

/// The partitions of one consumer, and the driver's callbacks.
pub(crate) struct Assignment {
    partitions: Mutex<Partitions>,
    queue: Arc<FetchQueue>,
    drain: Duration,
    reports: Reports,
    /// Held while a commit is on its way.
    committing: Mutex<()>,
}

impl Assignment {
    pub(crate) fn new(queue: Arc<FetchQueue>, drain: Duration, reports: Reports) -> Self {
        Self { partitions: Mutex::default(), queue, drain, reports, committing: Mutex::default() }
    }

    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<Arc<Partition>> {
        self.partitions.lock().get(&(Arc::from(topic), partition)).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.partitions.lock().values().cloned().collect()
    }

    fn add(&self, assigned: &TopicPartitionList) {
        let mut partitions = self.partitions.lock();
        for element in assigned.elements() {
            let topic: Arc<str> = Arc::from(element.topic());
            let partition = Partition::new(topic.clone(), element.partition());
            partitions.insert((topic, element.partition()), Arc::new(partition));
        }
    }

    /// Replaces a partition whose log was cut off or made again.
    pub(crate) fn restart(&self, partition: &Arc<Partition>) -> Arc<Partition> {
        tracing::warn!(
            partition = partition.name(),
            "kafka: offsets have gone back: the log was cut off, or the topic was made again"
        );
        partition.end();
        self.queue.retain(|it| !Arc::ptr_eq(it, partition));
        let new = Arc::new(Partition::new(partition.topic().clone(), partition.number()));
        new.set_paused(partition.is_paused());
        let key = (partition.topic().clone(), partition.number());
        self.partitions.lock().insert(key, new.clone());
        new
    }

    /// Gives the driver the offsets that may be committed. They are fenced: those of a partition that this consumer does
    /// not have any more are refused.
    pub(crate) fn store_progress(&self, consumer: &BaseConsumer<Self>) {
        let progress: Vec<_> = {
            let partitions = self.all().into_iter();
            partitions.filter_map(|it| it.next_to_store().map(|next| (it, next))).collect()
        };
        if progress.is_empty() {
            return;
        }
        let offsets = offsets_of(&progress);
        if let Err(error) = consumer.store_offsets(&offsets) {
            tracing::debug!("kafka: no offset was stored, the partitions were revoked: {error}");
        }
        for (partition, next) in progress {
            let stored = offsets.find_partition(partition.topic(), partition.number());
            if stored.is_some_and(|it| it.error().is_ok()) {
                partition.set_stored(next);
            }
        }
    }

    /// Commits what is stored, waits for the broker, and frees the windows.
    pub(crate) fn commit_stored(&self, consumer: &BaseConsumer<Self>) -> KafkaResult<()> {
        let stored = self.commit(consumer)?;
        // The driver reports an error only if it concerns all partitions.
        let is_confirmed = match stored.len() {
            0 | 1 => stored,
            _ => self.confirmed(consumer, stored)?,
        };
        is_confirmed.iter().for_each(|(partition, next)| partition.confirm_commit(*next));
        Ok(())
    }

    /// Commits what is stored, and waits for the broker. Returns what was stored before.
    ///
    /// Commits wait for each other. The driver repeats one that the broker could not take, after a pause and with the
    /// offsets that it had: a later commit that arrived meanwhile would be taken back.
    fn commit(&self, consumer: &BaseConsumer<Self>) -> KafkaResult<Vec<(Arc<Partition>, i64)>> {
        let _committing = self.committing.lock();
        let partitions = self.all().into_iter().filter(|it| it.uncommitted().1);
        let stored = partitions.filter_map(|it| it.stored().map(|next| (it, next))).collect();
        match consumer.commit_consumer_state(CommitMode::Sync) {
            Err(error) if !is_nothing_to_commit(&error) => return Err(error),
            Ok(()) | Err(_) => self.reports.succeeded(),
        }
        Ok(stored)
    }

    /// Those of these offsets that the broker has.
    fn confirmed(
        &self,
        consumer: &BaseConsumer<Self>,
        stored: Vec<(Arc<Partition>, i64)>,
    ) -> KafkaResult<Vec<(Arc<Partition>, i64)>> {
        let committed = consumer.committed_offsets(offsets_of(&stored), CONFIRM)?;
        let is_committed = |(partition, next): &(Arc<Partition>, i64)| {
            let committed = committed.find_partition(partition.topic(), partition.number());
            let is_so = committed.is_some_and(|it| {
                it.error().is_ok()
                    && matches!(it.offset(), Offset::Offset(offset) if offset >= *next)
            });
            if !is_so {
                let partition = partition.name();
                tracing::warn!(partition, "kafka: the offset of a partition was not committed");
            }
            is_so
        };
        Ok(stored.into_iter().filter(is_committed).collect())
    }

    /// Commits what is done, and waits for the broker.
    pub(crate) fn commit_now(&self, consumer: &BaseConsumer<Self>) {
        self.store_progress(consumer);
        if let Err(error) = self.commit(consumer) {
            tracing::warn!(
                "kafka: cannot commit offsets; messages that are done come again as duplicates: {error}"
            );
        }
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, revoked: &TopicPartitionList) {
        let revoked: Vec<_> = {
            let elements = revoked.elements();
            elements.iter().filter_map(|it| self.get(it.topic(), it.partition())).collect()
        };
        let is_revoked = |it: &Arc<Partition>| revoked.iter().any(|gone| Arc::ptr_eq(gone, it));
        self.queue.retain(|it| !is_revoked(it));
        // After a lost assignment another consumer may have the partitions already: a commit could move its offsets.
        if !consumer.assignment_lost() {
            let left = self.wait_for_handlers(&revoked);
            if left > 0 {
                tracing::warn!(
                    left,
                    "kafka: partitions were revoked while their messages were handled"
                );
            }
            revoked.iter().for_each(|partition| partition.close());
            self.commit_now(consumer);
        }
        resume(consumer, &revoked);
        self.partitions.lock().retain(|_, partition| !is_revoked(partition));
        revoked.iter().for_each(|partition| partition.end());
    }

    /// Waits until the messages that were handed over are settled. Returns how many are not.
    fn wait_for_handlers(&self, partitions: &[Arc<Partition>]) -> usize {
        let deadline = Instant::now() + self.drain;
        loop {
            let left = partitions.iter().map(|partition| partition.handed_over()).sum();
            // A source that closes has waited already.
            if left == 0 || Instant::now() >= deadline || self.queue.has_ended() {
                return left;
            }
            sleep(DRAIN_CHECK);
        }
    }
}

/// The driver keeps a partition paused over its assignments: one that comes back would never be fetched again.
fn resume(consumer: &BaseConsumer<Assignment>, revoked: &[Arc<Partition>]) {
    let mut paused = TopicPartitionList::new();
    for partition in revoked.iter().filter(|it| it.is_paused()) {
        paused.add_partition(partition.topic(), partition.number());
    }
    if paused.count() > 0
        && let Err(error) = consumer.resume(&paused)
    {
        tracing::warn!("kafka: cannot resume partitions that were revoked: {error}");
    }
}

/// The driver's list of these offsets.
fn offsets_of(partitions: &[(Arc<Partition>, i64)]) -> TopicPartitionList {
    let mut offsets = TopicPartitionList::new();
    for (partition, next) in partitions {
        // The offset is not negative, so it is accepted.
        let (topic, number) = (partition.topic(), partition.number());
        let _ = offsets.add_partition_offset(topic, number, Offset::Offset(*next));
    }
    offsets
}

/// True if no offset has moved since the last commit.
fn is_nothing_to_commit(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::NoOffset)
}

impl ClientContext for Assignment {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.reports.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reports.error(error, reason);
    }
}

impl ConsumerContext for Assignment {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(assigned) => {
                tracing::info!(count = assigned.count(), "kafka: partitions were assigned");
                self.add(assigned);
            }
            Rebalance::Revoke(revoked) => {
                tracing::info!(count = revoked.count(), "kafka: partitions were revoked");
                self.revoke(consumer, revoked);
            }
            Rebalance::Error(error) => {
                tracing::warn!("kafka: sharing the partitions failed: {error}")
            }
        }
    }
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment").field("partitions", &self.all()).finish_non_exhaustive()
    }
}
