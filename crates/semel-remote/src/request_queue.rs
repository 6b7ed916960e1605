//! A queue of requests in front of a group of workers, of which each has its own connection.

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::watch};

use semel_core::{Error, ErrorKind, Result};

use crate::{
    RuntimeConnection,
    batch::{BatchLimits, Batcher, Batches},
};

/// The callers' side of the queue. When it is dropped, its workers end.
#[derive(Debug)]
pub struct RequestQueue<C, A> {
    calls: Batcher<C, Result<A>>,
    connected: watch::Receiver<usize>,
}

/// The workers of one queue. It counts those that have a connection.
#[derive(Clone, Debug)]
pub struct WorkerGroup(watch::Sender<usize>);

/// Counts one worker as connected until it is dropped, also by a panic: the other workers leave requests to connected
/// ones.
#[derive(Debug)]
pub struct ConnectedWorker(watch::Sender<usize>);

impl<C, A> RequestQueue<C, A> {
    /// A queue and its workers' side, which is cloned for each worker.
    #[must_use]
    pub fn new(limits: BatchLimits) -> (Self, Batches<C, Result<A>>, WorkerGroup) {
        let ((calls, batches), (workers, connected)) = (Batcher::new(limits), watch::channel(0));
        (Self { calls, connected }, batches, WorkerGroup(workers))
    }

    /// A queue with `count` workers on `runtime`. It ends with that runtime, but not when its workers panic: on a runtime
    /// without sockets, workers of a new queue would panic again.
    pub fn on<F: Future<Output = ()> + Send + 'static>(
        runtime: &Handle,
        limits: BatchLimits,
        count: usize,
        work: impl Fn(Batches<C, Result<A>>, WorkerGroup) -> F,
    ) -> Self {
        let (queue, batches, workers) = Self::new(limits);
        for _ in 0..count {
            runtime.spawn(work(batches.clone(), workers.clone()));
        }
        runtime.spawn(async move { workers.0.closed().await });
        queue
    }

    /// Queues a request that carries this many bytes, and waits for its reply.
    pub fn call(&self, call: C, bytes: usize) -> impl Future<Output = Result<A>> + use<C, A> {
        // Not an async block, which would hold the inner future twice.
        self.calls.submit(call, bytes).map(|answer| answer.map_err(interrupted).flatten())
    }

    /// [`RequestQueue::call`] for several requests, which are done in this order.
    pub async fn call_all(&self, calls: Vec<C>) -> Vec<Result<A>> {
        let count = calls.len();
        let answers = self.calls.call_all(calls).await.map_err(interrupted);
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }
}

/// The queue ends with its runtime, but the store does not: the caller can repeat the call.
fn interrupted(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed => {
            Error::new(ErrorKind::Unavailable, "the connection's runtime shut down; retry the call")
        }
        _ => error,
    }
}

impl<C: Send, A: Send> RuntimeConnection for RequestQueue<C, A> {
    fn is_ready(&self) -> bool {
        *self.connected.borrow() > 0
    }

    fn is_failed(&self) -> bool {
        self.calls.is_closed()
    }

    fn is_runtime_gone(&self) -> bool {
        self.connected.has_changed().is_err()
    }
}

impl WorkerGroup {
    /// Counts the calling worker as connected.
    #[must_use]
    pub fn connected(&self) -> ConnectedWorker {
        self.0.send_modify(|count| *count += 1);
        ConnectedWorker(self.0.clone())
    }

    /// True when no worker has a connection.
    #[must_use]
    pub fn has_no_connection(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// The number of connected workers, as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

impl Drop for ConnectedWorker {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_worker_that_panics_is_not_connected() {
        let (queue, _batches, workers) = RequestQueue::<u32, u32>::new(BatchLimits::default());
        let other = workers.clone();
        let worker = tokio::spawn(async move {
            let _connected = other.connected();
            panic!("a test's panic");
        });
        assert!(worker.await.expect_err("the worker panicked").is_panic());
        assert!(!queue.is_ready() && !queue.is_runtime_gone());
        drop(workers);
        assert!(queue.is_runtime_gone());
    }

    #[tokio::test]
    async fn a_queue_ends_with_its_runtime_and_not_with_its_workers() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("a runtime starts");
        let work = |_, workers: WorkerGroup| async move {
            let _connected = workers.connected();
            panic!("a test's panic");
        };
        let queue = RequestQueue::<u32, u32>::on(runtime.handle(), BatchLimits::default(), 2, work);
        while runtime.metrics().num_alive_tasks() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!queue.is_ready() && queue.is_failed() && !queue.is_runtime_gone());
        runtime.shutdown_background();
        while !queue.is_runtime_gone() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_dropped_queue_leaves_no_task_behind() {
        let work = |mut calls: Batches<u32, Result<u32>>, _| async move {
            while calls.take().await.is_some() {}
        };
        let here = Handle::current();
        let queue = RequestQueue::<u32, u32>::on(&here, BatchLimits::default(), 2, work);
        assert_eq!(here.metrics().num_alive_tasks(), 3);
        drop(queue);
        while here.metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_without_any_worker_left_can_be_retried() {
        let (queue, batches, workers) = RequestQueue::<u32, u32>::new(BatchLimits::default());
        let _connected = workers.connected();
        drop(batches);
        let error = queue.call(1, 0).await.expect_err("no worker is left");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(queue.call_all(vec![1, 2]).await.len(), 2);
    }
}
