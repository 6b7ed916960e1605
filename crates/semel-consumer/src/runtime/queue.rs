//! Deliveries that wait for a free handler: in order for each ordering key, and bounded.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::source::Delivery;

/// A delivery that is received and not settled.
pub(crate) struct QueuedDelivery {
    pub(crate) delivery: Delivery,
    pub(crate) ordering_key: Option<Arc<str>>,
    /// Its number in the list of deadlines.
    pub(crate) deadline: Option<u64>,
}

/// Deliveries with the same ordering key are handed out one at a time, in the order in which they came.
pub(crate) struct DeliveryQueue {
    state: Mutex<QueueState>,
    /// One permit for each delivery in `ready`.
    ready: Semaphore,
    /// A delivery was settled, or few are ready.
    settled: Notify,
    capacity: usize,
    /// While so many deliveries are ready, messages are requested only for so many free places: one request for each
    /// settled message would cost more than the message.
    refill: usize,
}

struct QueueState {
    ready: VecDeque<QueuedDelivery>,
    /// A key is here while one of its deliveries is ready or running; the deliveries behind it wait.
    waiting: HashMap<Arc<str>, VecDeque<QueuedDelivery>>,
    in_flight: usize,
}

impl DeliveryQueue {
    /// A queue for `capacity` deliveries, of which `concurrency` may run at the same time.
    pub(crate) fn new(capacity: usize, concurrency: usize) -> Self {
        let state = QueueState { ready: VecDeque::new(), waiting: HashMap::new(), in_flight: 0 };
        Self {
            state: Mutex::new(state),
            ready: Semaphore::new(0),
            settled: Notify::new(),
            capacity,
            // Half of what may wait.
            refill: (capacity.saturating_sub(concurrency) / 2).max(1),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state.lock().in_flight
    }

    /// Waits until a request is worth while, and returns how many places are free.
    pub(crate) async fn free(&self) -> usize {
        loop {
            let settled = self.settled.notified();
            let (free, ready) = {
                let state = self.state.lock();
                (self.capacity.saturating_sub(state.in_flight), state.ready.len())
            };
            if free >= self.refill || (free > 0 && ready < self.refill) {
                return free;
            }
            settled.await;
        }
    }

    pub(crate) fn push(&self, deliveries: impl IntoIterator<Item = QueuedDelivery>) {
        let mut state = self.state.lock();
        let mut added = 0;
        for queued in deliveries {
            state.in_flight += 1;
            if let Some(key) = &queued.ordering_key {
                if let Some(waiting) = state.waiting.get_mut(key) {
                    waiting.push_back(queued);
                    continue;
                }
                let key = key.clone();
                state.waiting.insert(key, VecDeque::new());
            }
            state.ready.push_back(queued);
            added += 1;
        }
        drop(state);
        self.ready.add_permits(added);
    }

    /// The next deliveries that may run, one to `max`; `None` once the queue is closed.
    pub(crate) async fn next_batch(&self, max: usize) -> Option<Vec<QueuedDelivery>> {
        self.ready.acquire().await.ok()?.forget();
        let more = (1..max).take_while(|_| {
            self.ready.try_acquire().is_ok_and(|permit| {
                permit.forget();
                true
            })
        });
        let count = 1 + more.count();
        let mut state = self.state.lock();
        let count = count.min(state.ready.len());
        let taken = state.ready.drain(..count).collect();
        let is_low = state.ready.len() < self.refill;
        drop(state);
        if is_low {
            self.settled.notify_one();
        }
        Some(taken)
    }

    /// Waits until all deliveries are settled.
    pub(crate) async fn drained(&self) {
        loop {
            let settled = self.settled.notified();
            if self.in_flight() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// The delivery is settled: the next one with its ordering key may run.
    pub(crate) fn finish(&self, ordering_key: Option<&Arc<str>>) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        let next = ordering_key.and_then(|key| {
            let next = state.waiting.get_mut(key)?.pop_front();
            if next.is_none() {
                state.waiting.remove(key);
            }
            next
        });
        let is_ready = next.is_some();
        state.ready.extend(next);
        drop(state);
        if is_ready {
            self.ready.add_permits(1);
        }
        self.settled.notify_one();
    }

    /// Hands out nothing more, and returns the deliveries that no worker has taken.
    pub(crate) fn close(&self) -> Vec<QueuedDelivery> {
        self.ready.close();
        let mut state = self.state.lock();
        let waiting = std::mem::take(&mut state.waiting);
        let mut left: Vec<_> = state.ready.drain(..).collect();
        left.extend(waiting.into_values().flatten());
        state.in_flight -= left.len();
        left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use semel_core::Result;

    use super::*;
    use crate::{message::Message, source::Settlement};

    struct NoBroker;

    #[async_trait]
    impl Settlement for NoBroker {
        async fn ack(&self) -> Result<()> {
            Ok(())
        }
        async fn nack(&self, _: Duration) -> Result<()> {
            Ok(())
        }
        async fn reject(&self, _: &str) -> Result<()> {
            Ok(())
        }
        async fn extend(&self) -> Result<()> {
            Ok(())
        }
    }

    fn queued(position: &str, key: Option<&str>) -> QueuedDelivery {
        let message = Message { position: position.into(), ..Message::default() };
        let ordering_key = key.map(Arc::from);
        QueuedDelivery { delivery: Delivery::new(message, NoBroker), ordering_key, deadline: None }
    }

    async fn next(queue: &DeliveryQueue) -> (String, Option<Arc<str>>) {
        let queued = queue.next_batch(1).await.unwrap().remove(0);
        (queued.delivery.message.position.clone(), queued.ordering_key)
    }

    #[tokio::test]
    async fn deliveries_of_one_key_come_one_at_a_time_and_in_order() {
        let queue = DeliveryQueue::new(10, 10);
        queue.push([queued("a1", Some("a")), queued("a2", Some("a")), queued("b1", Some("b"))]);
        queue.push([queued("a3", Some("a")), queued("free", None)]);
        let (first, key) = next(&queue).await;
        assert_eq!(first, "a1");
        assert_eq!(next(&queue).await.0, "b1");
        assert_eq!(next(&queue).await.0, "free");
        let blocked = tokio::time::timeout(Duration::from_millis(20), queue.next_batch(1)).await;
        assert!(blocked.is_err(), "a2 waits for a1");
        queue.finish(key.as_ref());
        assert_eq!(next(&queue).await.0, "a2");
        queue.finish(key.as_ref());
        assert_eq!(next(&queue).await.0, "a3");
    }

    #[tokio::test]
    async fn a_full_queue_waits_for_a_settled_delivery() {
        let queue = DeliveryQueue::new(1, 1);
        queue.push([queued("1", None)]);
        let (_, key) = next(&queue).await;
        let full = tokio::time::timeout(Duration::from_millis(20), queue.free()).await;
        assert!(full.is_err());
        queue.finish(key.as_ref());
        assert_eq!(queue.free().await, 1);
    }

    #[tokio::test]
    async fn free_places_are_collected_while_enough_deliveries_wait() {
        let queue = DeliveryQueue::new(8, 4);
        queue.push((0..8).map(|n| queued(&n.to_string(), None)));
        let settle = async || queue.finish(next(&queue).await.1.as_ref());
        settle().await;
        let waiting = tokio::time::timeout(Duration::from_millis(20), queue.free()).await;
        assert!(waiting.is_err(), "seven deliveries are more than four handlers need");
        settle().await;
        assert_eq!(queue.free().await, 2);
    }

    #[tokio::test]
    async fn a_closed_queue_gives_back_what_waits() {
        let queue = DeliveryQueue::new(10, 10);
        queue.push([queued("a1", Some("a")), queued("a2", Some("a")), queued("b", None)]);
        let (_, key) = next(&queue).await;
        let left = queue.close().len();
        assert_eq!((left, queue.in_flight()), (2, 1));
        assert!(queue.next_batch(1).await.is_none());
        queue.finish(key.as_ref());
        assert_eq!(queue.in_flight(), 0);
    }
}
