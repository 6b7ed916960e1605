//! Records between the thread that fetches them and the caller that receives them, and records that were given back.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use semel_consumer::{Delivery, Message};
use semel_core::{Error, Result};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    partition::{FirstDelivery, Partition},
    settlement::KafkaSettlement,
};

/// Records that wait to be received. Beyond this, partitions are paused.
const MAX_RECORDS: usize = 1_000;
/// Bytes of payload that wait to be received. One record may be larger.
const MAX_BYTES: usize = 16 << 20;

/// A record that was fetched and is not settled.
#[derive(Clone, Debug)]
pub(crate) struct FetchedRecord {
    pub(crate) message: Arc<Message>,
    pub(crate) partition: Arc<Partition>,
    pub(crate) offset: i64,
    pub(crate) first_delivery: FirstDelivery,
    /// How often this process has handed it over.
    pub(crate) deliveries: u32,
}

/// Records of all partitions.
#[derive(Debug, Default)]
pub(crate) struct FetchQueue {
    state: Mutex<QueueState>,
    /// There is something for the receiver: a record, an error, or the end.
    arrived: Notify,
    /// There is something for the thread that fetches: a free place, or the end.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    ready: VecDeque<FetchedRecord>,
    bytes: usize,
    delayed: BinaryHeap<Reverse<DelayedRecord>>,
    /// Numbers delayed records, so that those with one time keep their order.
    next_delayed: u64,
    /// What the driver reported last.
    error: Option<Error>,
    /// Why no more records will come, although the caller has not closed the queue.
    ended: Option<Error>,
    is_closed: bool,
}

/// A record that was given back.
#[derive(Debug)]
struct DelayedRecord {
    due_at: Instant,
    number: u64,
    record: FetchedRecord,
}

impl FetchQueue {
    /// Adds fetched records.
    pub(crate) fn push(&self, records: impl IntoIterator<Item = FetchedRecord>) {
        let mut state = self.state.lock();
        for record in records {
            state.bytes += record.message.body.len();
            state.ready.push_back(record);
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Adds a record that was given back. It is received again after `delay`.
    pub(crate) fn give_back(&self, record: FetchedRecord, delay: Duration) {
        if !record.partition.give_back(record.offset) {
            return;
        }
        let mut state = self.state.lock();
        let number = state.next_delayed;
        state.next_delayed += 1;
        let due_at = Instant::now() + delay;
        state.delayed.push(Reverse(DelayedRecord { due_at, number, record }));
        drop(state);
        self.arrived.notify_one();
    }

    /// The next call of the receiver fails with `error`.
    pub(crate) fn fail(&self, error: Error) {
        self.state.lock().error = Some(error);
        self.arrived.notify_one();
    }

    /// No more records will come: every call of the receiver fails with `why` from now on. The first reason stays.
    pub(crate) fn end(&self, why: Error) {
        self.state.lock().ended.get_or_insert(why);
        self.arrived.notify_one();
        self.taken.notify_one();
    }

    /// Waits for records, and hands over one to `max` of them. An empty list means that the queue is closed. The future
    /// can be dropped: records leave the queue only when it returns.
    ///
    /// # Errors
    ///
    /// What the driver has reported; after [`end`](Self::end), its reason, in every call.
    pub(crate) async fn receive(self: &Arc<Self>, max: usize) -> Result<Vec<Delivery>> {
        loop {
            let arrived = self.arrived.notified();
            let next_due = {
                let mut state = self.state.lock();
                if let Some(why) = state.ended.as_ref().filter(|_| !state.is_closed) {
                    return Err(why.clone());
                }
                if let Some(error) = state.error.take() {
                    return Err(error);
                }
                let deliveries = self.take(&mut state, max);
                if !deliveries.is_empty() || state.is_closed {
                    return Ok(deliveries);
                }
                state.delayed.peek().map(|Reverse(delayed)| delayed.due_at)
            };
            match next_due {
                None => arrived.await,
                Some(due_at) => tokio::select! {
                    () = arrived => {}
                    () = sleep_until(due_at) => {}
                },
            }
        }
    }

    fn take(self: &Arc<Self>, state: &mut QueueState, max: usize) -> Vec<Delivery> {
        if state.is_closed {
            return Vec::new();
        }
        let mut deliveries = Vec::with_capacity(max.min(state.ready.len() + state.delayed.len()));
        let now = Instant::now();
        while deliveries.len() < max {
            let Some(record) = state.next(now) else { break };
            // A partition that was revoked meanwhile: another consumer gets the record.
            if record.partition.hand_over(record.offset) {
                deliveries.push(self.delivery(record));
            }
        }
        self.taken.notify_one();
        deliveries
    }

    fn delivery(self: &Arc<Self>, mut record: FetchedRecord) -> Delivery {
        record.deliveries += 1;
        let deliveries = match record.first_delivery {
            FirstDelivery::Known => Some(record.deliveries),
            // From the second delivery on a count is known that is at least this. Without one, attempts in transactions
            // would have no limit.
            FirstDelivery::Unknown => (record.deliveries > 1).then_some(record.deliveries),
        };
        if record.message.deliveries != deliveries {
            Arc::make_mut(&mut record.message).deliveries = deliveries;
        }
        let message = record.message.clone();
        Delivery::new(message, KafkaSettlement::new(self.clone(), record))
    }

    /// Waits until there is room for more records, for this long at most. True if there is.
    pub(crate) fn wait_for_room(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        // A receiver that takes one record leaves the queue full.
        let waits = |state: &mut QueueState| state.is_full() && !state.has_ended();
        self.taken.wait_while_for(&mut state, waits, patience);
        !state.is_full()
    }

    /// Removes the records of partitions that were revoked.
    pub(crate) fn retain(&self, keeps: impl Fn(&Arc<Partition>) -> bool) {
        let mut state = self.state.lock();
        state.ready.retain(|record| keeps(&record.partition));
        state.bytes = state.ready.iter().map(|record| record.message.body.len()).sum();
        state.delayed.retain(|Reverse(delayed)| keeps(&delayed.record.partition));
    }

    /// Records that wait to be received, also those that were given back.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.delayed.len()
    }

    /// Hands over nothing more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
        self.taken.notify_one();
    }

    /// True if nothing is handed over any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended()
    }
}

impl QueueState {
    const fn has_ended(&self) -> bool {
        self.is_closed || self.ended.is_some()
    }

    fn is_full(&self) -> bool {
        self.ready.len() >= MAX_RECORDS || self.bytes >= MAX_BYTES
    }

    /// The next record: one that was given back and is due, or the oldest one that was fetched.
    fn next(&mut self, now: Instant) -> Option<FetchedRecord> {
        if self.delayed.peek().is_some_and(|Reverse(delayed)| delayed.due_at <= now) {
            return self.delayed.pop().map(|Reverse(delayed)| delayed.record);
        }
        let record = self.ready.pop_front()?;
        self.bytes -= record.message.body.len();
        Some(record)
    }
}

impl PartialEq for DelayedRecord {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedRecord {}

impl PartialOrd for DelayedRecord {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedRecord {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_at, self.number).cmp(&(other.due_at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use semel_core::ErrorKind;

    use super::*;

    fn record(partition: &Arc<Partition>, offset: i64) -> FetchedRecord {
        let first_delivery = partition.fetch(offset).unwrap();
        let position = format!("{}/{offset}", partition.name());
        let message = Arc::new(Message { position, ..Message::new("t", "x") });
        FetchedRecord {
            message,
            partition: partition.clone(),
            offset,
            first_delivery,
            deliveries: 0,
        }
    }

    fn queue(offsets: std::ops::Range<i64>) -> (Arc<FetchQueue>, Arc<Partition>) {
        let (queue, partition) = (Arc::new(FetchQueue::default()), Partition::new("t".into(), 0));
        let partition = Arc::new(partition);
        queue.push(offsets.map(|offset| record(&partition, offset)));
        (queue, partition)
    }

    fn positions(deliveries: &[Delivery]) -> Vec<&str> {
        deliveries.iter().map(|it| it.message.position.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_was_given_back_comes_again_after_its_delay() {
        let (queue, _) = queue(0..3);
        let mut deliveries = queue.receive(2).await.unwrap();
        assert_eq!(positions(&deliveries), ["t/0/0", "t/0/1"]);
        let begin = Instant::now();
        deliveries.remove(0).nack(Duration::from_secs(5)).await.unwrap();
        drop(deliveries);
        let third = queue.receive(9).await.unwrap();
        assert_eq!(positions(&third), ["t/0/2"]);
        let dropped = queue.receive(9).await.unwrap();
        assert_eq!(positions(&dropped), ["t/0/1"]);
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(positions(&queue.receive(9).await.unwrap()), ["t/0/0"]);
        assert!(begin.elapsed() >= Duration::from_secs(5));
    }

    #[tokio::test]
    async fn records_of_a_partition_that_was_revoked_are_not_handed_over() {
        let (queue, partition) = queue(0..2);
        let held = queue.receive(1).await.unwrap().remove(0);
        let kept = Arc::new(Partition::new("t".into(), 1));
        queue.push([record(&kept, 0)]);
        queue.retain(|it| !Arc::ptr_eq(it, &partition));
        partition.end();
        let error = held.ack().await.unwrap_err();
        assert!(error.to_string().contains("t/0/0"), "{error}");
        assert_eq!(positions(&queue.receive(9).await.unwrap()), ["t/1/0"]);
    }

    #[tokio::test]
    async fn an_error_is_reported_once_and_a_closed_queue_has_ended() {
        let (queue, _) = queue(0..1);
        queue.fail(crate::error::unreachable());
        queue.receive(1).await.unwrap_err();
        assert_eq!(queue.receive(1).await.unwrap().len(), 1);
        queue.close();
        assert!(queue.receive(1).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn every_call_of_the_receiver_says_why_no_more_records_come() {
        let (queue, _) = queue(0..1);
        let waiting = queue.clone();
        let waiting = tokio::spawn(async move {
            waiting.receive(1).await.unwrap();
            waiting.receive(1).await
        });
        tokio::task::yield_now().await;
        queue.end(crate::error::thread_ended());
        queue.end(crate::error::unreachable());
        waiting.await.unwrap().unwrap_err();
        for _ in 0..2 {
            let error = queue.receive(1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        assert!(queue.has_ended());
        queue.close();
        assert!(queue.receive(1).await.unwrap().is_empty());
    }

    #[test]
    fn a_full_queue_has_no_room() {
        let (queue, _) = queue(0..1);
        assert!(queue.wait_for_room(Duration::ZERO));
        let (queue, _) = self::queue(0..1_000);
        assert!(!queue.wait_for_room(Duration::ZERO));
    }
}
