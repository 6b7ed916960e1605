//! The thread that has the driver's consumer: it polls, pauses partitions, and commits offsets.
//!
//! The driver wants to be polled all the time, also while nothing can be received, and closes a consumer only by
//! blocking. Neither belongs on the threads of an async runtime.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
    message::{BorrowedMessage, Message as _},
    types::RDKafkaErrorCode,
};
use semel_core::{Error, Result};
use tokio::sync::oneshot;

use crate::{
    assignment::Assignment,
    client::Reports,
    commit_thread::CommitThread,
    error,
    fetch_queue::{FetchQueue, FetchedRecord},
    message::{self, OrderingKey},
    partition::Partition,
};

pub(crate) type KafkaConsumer = BaseConsumer<Assignment>;

/// How long one poll waits for a record. Closing and committing wait for as long.
const POLL: Duration = Duration::from_millis(50);
/// Records that are added to the queue together.
const BATCH: usize = 128;
/// How often offsets are given to the driver.
const STORE: Duration = Duration::from_millis(5);
/// How often offsets are committed, if the window does not need it sooner.
const COMMIT: Duration = Duration::from_secs(1);
/// The least time between two commits.
const SOONEST_COMMIT: Duration = Duration::from_millis(20);
/// How long the thread waits for room before it pauses all partitions.
const ROOM: Duration = Duration::from_millis(200);
/// How long giving the partitions back may take.
const LEAVE: Duration = Duration::from_secs(5);
/// How long a request about a partition may take.
const METADATA: Duration = Duration::from_secs(10);

/// What the thread needs.
pub(crate) struct PollThread {
    pub(crate) config: ClientConfig,
    pub(crate) topics: Vec<String>,
    pub(crate) ordering_key: OrderingKey,
    pub(crate) window: usize,
    pub(crate) drain: Duration,
    pub(crate) queue: Arc<FetchQueue>,
    pub(crate) reports: Reports,
}

/// A running thread.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The consumer; gone once the thread has ended.
    pub(crate) consumer: Weak<KafkaConsumer>,
    /// Closed once the thread has ended.
    pub(crate) ended: oneshot::Receiver<()>,
}

impl PollThread {
    /// Starts the thread, and waits until it has subscribed. It joins the group while it polls.
    pub(crate) async fn start(self) -> Result<Polling> {
        let (started, is_started) = oneshot::channel();
        let (running, ended) = oneshot::channel::<()>();
        let run = move || {
            let consumer = match self.open() {
                Ok(consumer) => Arc::new(consumer),
                Err(error) => return drop(started.send(Err(error))),
            };
            // Nobody waits any more: the call that opens the source was dropped.
            if started.send(Ok(Arc::downgrade(&consumer))).is_err() {
                return;
            }
            self.run(&consumer);
            // This closes the consumer, which blocks.
            drop(consumer);
            drop(running);
        };
        let spawned = thread::Builder::new().name("semel-kafka".to_owned()).spawn(run);
        spawned.map_err(error::no_thread)?;
        let consumer = is_started.await.map_err(|_| error::closed())??;
        Ok(Polling { consumer, ended })
    }

    fn open(&self) -> Result<KafkaConsumer> {
        let context = Assignment::new(self.queue.clone(), self.drain, self.reports.clone());
        let created = self.config.create_with_context(context);
        let consumer: KafkaConsumer =
            created.map_err(|error| error::about("the cluster", &error))?;
        let topics: Vec<_> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| error::about("the topics", &error))?;
        Ok(consumer)
    }

    /// Polls until the queue is closed, and leaves the group. The queue ends whatever happens: otherwise a receiver would
    /// wait for ever, in a process that holds its partitions and consumes nothing.
    fn run(&self, consumer: &Arc<KafkaConsumer>) {
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_until_closed(consumer)));
        match polled {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("kafka: the consumer ends: {error}"),
            Err(_panic) => tracing::error!("kafka: the consumer ends after a panic"),
        }
        self.queue.end(error::thread_ended());
        consumer.context().commit_now(consumer);
        self.leave(consumer);
    }

    fn poll_until_closed(&self, consumer: &Arc<KafkaConsumer>) -> Result<()> {
        let commits = CommitThread::start(consumer)?;
        let (mut stored_at, mut committed) = (Instant::now(), Instant::now());
        while !self.queue.has_ended() {
            let now = Instant::now();
            if now.duration_since(stored_at) >= STORE {
                stored_at = now;
                self.commit(consumer, &commits, &mut committed);
            }
            let has_room = self.queue.wait_for_room(ROOM);
            // Not as soon as the queue is full: after a pause, the driver may be half a second without records, because
            // it drops what it has fetched ahead, and a request for the other partitions may be on its way.
            self.pause_and_resume(consumer, !has_room);
            // All partitions are paused if there is no room. The driver still has to be polled, or the group expels us.
            self.fetch(consumer, if has_room { POLL } else { Duration::ZERO });
        }
        Ok(())
    }

    /// Gives all partitions back before the consumer is closed. The driver aborts the process if it is closed during a
    /// rebalance.
    fn leave(&self, consumer: &KafkaConsumer) {
        consumer.unsubscribe();
        let deadline = Instant::now() + LEAVE;
        let is_assigned = || consumer.assignment().is_ok_and(|assigned| assigned.count() > 0);
        // At least one look: an assignment may be on its way.
        loop {
            drop(consumer.poll(POLL));
            let has_partitions = is_assigned() || !consumer.context().all().is_empty();
            if !has_partitions || Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Fetches up to a batch of records, and waits for the first one for `patience` at most.
    fn fetch(&self, consumer: &KafkaConsumer, patience: Duration) {
        let mut records = Vec::new();
        let mut wait = patience;
        while let Some(polled) = consumer.poll(wait) {
            match polled {
                Ok(record) => records.extend(self.fetched(consumer, &record)),
                Err(error) => self.report(&error),
            }
            wait = Duration::ZERO;
            if records.len() >= BATCH {
                break;
            }
        }
        if !records.is_empty() {
            self.reports.succeeded();
            self.queue.push(records);
        }
    }

    /// `None` for a record of a partition that was revoked meanwhile.
    fn fetched(
        &self,
        consumer: &KafkaConsumer,
        record: &BorrowedMessage<'_>,
    ) -> Option<FetchedRecord> {
        let assignment = consumer.context();
        let offset = record.offset();
        let mut partition = assignment.get(record.topic(), record.partition())?;
        let mut first_delivery = partition.fetch(offset);
        if first_delivery.is_none() {
            partition = assignment.restart(&partition);
            first_delivery = partition.fetch(offset);
        }
        if partition.uncommitted().0 >= self.window {
            self.pause(consumer, &partition);
        }
        let message = message::of_record(record, partition.name(), &self.ordering_key);
        Some(FetchedRecord {
            message: Arc::new(message),
            partition,
            offset,
            first_delivery: first_delivery?,
            deliveries: 0,
        })
    }

    /// Pauses a partition whose window is full. The driver drops records that it has fetched ahead, and fetches them
    /// again later.
    fn pause(&self, consumer: &KafkaConsumer, partition: &Partition) {
        let mut paused = TopicPartitionList::new();
        paused.add_partition(partition.topic(), partition.number());
        partition.set_paused(true);
        log_pause(consumer.pause(&paused));
    }

    fn report(&self, failed: &KafkaError) {
        if let KafkaError::MessageConsumptionFatal(_) = failed {
            // The driver reports it once, and then delivers nothing more.
            let why = error::ended(&self.reports.explain("the group of this source", failed));
            tracing::error!("{why}");
            return self.queue.end(why);
        }
        if let KafkaError::MessageConsumption(RDKafkaErrorCode::AllBrokersDown) = failed {
            return self.queue.fail(error::unreachable());
        }
        self.queue.fail(self.reports.explain("the topics of this source", failed));
    }

    /// Commits when it is time, or when a window fills up.
    fn commit(&self, consumer: &KafkaConsumer, commits: &CommitThread, committed: &mut Instant) {
        let assignment = consumer.context();
        assignment.store_progress(consumer);
        let since = committed.elapsed();
        if since < SOONEST_COMMIT {
            return;
        }
        let is_due = |partition: Arc<Partition>| {
            let (uncommitted, has_progress) = partition.uncommitted();
            has_progress && (since >= COMMIT || uncommitted >= self.window / 2)
        };
        if assignment.all().into_iter().any(is_due) {
            *committed = Instant::now();
            commits.request();
        }
    }

    /// Pauses partitions whose window is full, and all of them if `pauses_all`.
    fn pause_and_resume(&self, consumer: &KafkaConsumer, pauses_all: bool) {
        let (mut paused, mut resumed) = (TopicPartitionList::new(), TopicPartitionList::new());
        for partition in consumer.context().all() {
            let (uncommitted, _) = partition.uncommitted();
            // A partition that was paused goes on when half of its window is free, not at each commit.
            let limit = if partition.is_paused() { self.window.div_ceil(2) } else { self.window };
            let pauses = pauses_all || uncommitted >= limit;
            if pauses != partition.is_paused() {
                partition.set_paused(pauses);
                let list = if pauses { &mut paused } else { &mut resumed };
                list.add_partition(partition.topic(), partition.number());
            }
        }
        if paused.count() > 0 {
            log_pause(consumer.pause(&paused));
        }
        if resumed.count() > 0 {
            log_pause(consumer.resume(&resumed));
        }
    }
}

/// It fails for a partition that was revoked meanwhile.
fn log_pause(result: KafkaResult<()>) {
    if let Err(error) = result {
        tracing::debug!("kafka: cannot pause or resume a partition: {error}");
    }
}

/// The number of records between the next one of this consumer and the end of its partitions, and what waits here.
pub(crate) fn lag(consumer: &KafkaConsumer, queue: &FetchQueue, reports: &Reports) -> Result<u64> {
    let explain = |error: KafkaError| reports.explain("the partitions of this source", &error);
    let positions = consumer.position().map_err(explain)?;
    let mut lag = queue.waiting() as u64;
    for element in positions.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let (begin, end) =
            consumer.fetch_watermarks(topic, partition, METADATA).map_err(explain)?;
        let next = match element.offset() {
            rdkafka::Offset::Offset(next) => next,
            // Nothing was fetched yet: the group begins at its committed offset.
            _ => committed(consumer, topic, partition).map_err(explain)?.unwrap_or(begin),
        };
        lag += u64::try_from(end - next.max(begin)).unwrap_or_default();
    }
    Ok(lag)
}

fn committed(
    consumer: &KafkaConsumer,
    topic: &str,
    partition: i32,
) -> std::result::Result<Option<i64>, KafkaError> {
    let mut asked = TopicPartitionList::new();
    asked.add_partition(topic, partition);
    let committed = consumer.committed_offsets(asked, METADATA)?;
    let offset = committed.elements().first().map(|element| element.offset());
    Ok(match offset {
        Some(rdkafka::Offset::Offset(next)) => Some(next),
        _ => None,
    })
}

/// Runs what blocks on a thread for that.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(Error::new(semel_core::ErrorKind::Closed, "kafka: the runtime ends"))
    })
}
