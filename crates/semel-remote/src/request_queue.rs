//! A lane of workers that have a connection each.

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::watch};

use semel_core::{Error, ErrorKind, Result};

use crate::{
    RuntimeConnection,
    batch::{BatchLimits, Batcher, Batches},
};

/// The callers' side of a lane whose calls wait for a worker. Dropped, it lets its workers come to an end.
#[derive(Debug)]
pub struct RequestQueue<C, A> {
    calls: Batcher<C, Result<A>>,
    connected: watch::Receiver<usize>,
}

/// The workers of a lane, and how many of them have a connection.
#[derive(Clone, Debug)]
pub struct WorkerGroup(watch::Sender<usize>);

/// A worker with a connection. It is one no more when this is dropped, also by a panic: the others would leave calls
/// to it.
#[derive(Debug)]
pub struct ConnectedWorker(watch::Sender<usize>);

impl<C, A> RequestQueue<C, A> {
    /// With a worker's side, which is cloned for each of them.
    #[must_use]
    pub fn new(limits: BatchLimits) -> (Self, Batches<C, Result<A>>, WorkerGroup) {
        let ((calls, batches), (workers, connected)) = (Batcher::new(limits), watch::channel(0));
        (Self { calls, connected }, batches, WorkerGroup(workers))
    }

    /// A lane with so many workers on `runtime`. It is over when that is gone, and not when they panic: they would again
    /// in another, as where a runtime has no sockets.
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

    /// Queues a call that carries so many bytes. What is told is the worker's answer, or why there is none.
    pub fn call(&self, call: C, bytes: usize) -> impl Future<Output = Result<A>> + use<C, A> {
        // Not as an async block, which would carry the other twice.
        self.calls.submit(call, bytes).map(|answer| answer.map_err(interrupted).flatten())
    }

    /// The same for several calls that happen in this order.
    pub async fn call_all(&self, calls: Vec<C>) -> Vec<Result<A>> {
        let count = calls.len();
        let answers = self.calls.call_all(calls).await.map_err(interrupted);
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
    }
}

/// A lane ends with its runtime, and the store does not.
fn interrupted(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed => Error::new(
            ErrorKind::Unavailable,
            "who was to serve this call is gone with its runtime; make it again",
        ),
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
    /// Counts the worker that calls, which has a connection.
    #[must_use]
    pub fn connected(&self) -> ConnectedWorker {
        self.0.send_modify(|count| *count += 1);
        ConnectedWorker(self.0.clone())
    }

    /// Whether nobody has one.
    #[must_use]
    pub fn has_no_connection(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// How many have one, as it changes.
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
    async fn who_panics_has_no_connection() {
        let (queue, _batches, workers) = RequestQueue::<u32, u32>::new(BatchLimits::default());
        let other = workers.clone();
        let worker = tokio::spawn(async move {
            let _connected = other.connected();
            panic!("made up");
        });
        assert!(worker.await.expect_err("it panicked").is_panic());
        assert!(!queue.is_ready() && !queue.is_runtime_gone());
        drop(workers);
        assert!(queue.is_runtime_gone());
    }

    #[tokio::test]
    async fn a_lane_is_over_with_its_runtime_and_not_with_its_workers() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("one starts");
        let work = |_, workers: WorkerGroup| async move {
            let _connected = workers.connected();
            panic!("made up");
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
    async fn a_lane_that_nobody_uses_leaves_nothing_behind() {
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
    async fn calls_that_no_worker_is_left_for_may_be_made_again() {
        let (queue, batches, workers) = RequestQueue::<u32, u32>::new(BatchLimits::default());
        let _connected = workers.connected();
        drop(batches);
        let error = queue.call(1, 0).await.expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(queue.call_all(vec![1, 2]).await.len(), 2);
    }
}
