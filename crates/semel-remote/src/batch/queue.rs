//! The queue between callers and workers.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::pending::{BatchReplies, PendingCall, unacknowledged};
use semel_core::{
    Error, ErrorKind, Result,
    sync::{Condvar, Mutex, bug, yield_now},
};

/// Bounds on batches and on the queue in front of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// How many calls a batch holds at most; more only if they were queued together.
    pub batch: usize,
    /// How many calls wait for a worker at most; more are refused.
    pub queued: usize,
    /// How many bytes the calls of a batch carry at most ([`Batcher::submit`]), unless a single call carries more.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { batch: 4096, queued: 65_536, bytes: 8 * 1024 * 1024 }
    }
}

/// [`Batches::gather`] waits for more calls only if the last batch had at least this many.
const MIN_GATHERED: usize = 8;

/// [`Batches::gather`] takes the queue as it is after it did not grow for this many looks.
const MAX_IDLE_LOOKS: u32 = 16;

/// The callers' side. Clones share one queue; when the last one is dropped, the workers end.
pub struct Batcher<C, A>(Arc<CallerHandle<C, A>>);

/// A worker's side. A clone lets a second worker have a batch in flight.
pub struct Batches<C, A>(Arc<BatcherState<C, A>>);

/// Calls that one worker took together.
#[derive(Debug)]
pub struct Batch<C, A> {
    /// In the order in which they were queued.
    pub calls: Vec<C>,
    /// Takes the replies.
    pub reply: ReplySender<A>,
}

/// Sends the replies of one batch. If it is dropped instead, the callers get an error: their calls may have happened.
#[derive(Debug)]
pub struct ReplySender<A> {
    replies: Option<Arc<BatchReplies<A>>>,
}

struct CallerHandle<C, A>(Arc<BatcherState<C, A>>);

struct BatcherState<C, A> {
    queue: Mutex<CallQueue<C, A>>,
    arrived: Condvar,
    limits: BatchLimits,
}

struct CallQueue<C, A> {
    /// Only the last batch still grows.
    batches: VecDeque<GrowingBatch<C, A>>,
    queued: usize,
    /// How many calls the last taken batch had: the next one is likely as large.
    last_size: usize,
    idle_threads: usize,
    idle_tasks: Vec<Waker>,
    workers: usize,
    closed: bool,
}

struct GrowingBatch<C, A> {
    calls: Vec<C>,
    bytes: usize,
    replies: Arc<BatchReplies<A>>,
}

impl<C, A> Batcher<C, A> {
    /// A queue with one worker's side.
    #[must_use]
    pub fn new(limits: BatchLimits) -> (Self, Batches<C, A>) {
        let queue = CallQueue {
            batches: VecDeque::new(),
            queued: 0,
            last_size: 0,
            idle_threads: 0,
            idle_tasks: Vec::new(),
            workers: 1,
            closed: false,
        };
        let arrived = Condvar::new();
        let shared = Arc::new(BatcherState { queue: Mutex::new(queue), arrived, limits });
        (Self(Arc::new(CallerHandle(shared.clone()))), Batches(shared))
    }

    /// Queues one call at the first poll, and waits for its reply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Full`] and [`ErrorKind::Closed`]: the call was not queued and never happens.
    /// [`ErrorKind::Unavailable`]: the worker sent no reply; the call may have happened.
    pub async fn call(&self, call: C) -> Result<A> {
        self.submit(call, 0).await
    }

    /// [`Batcher::call`] for a call that carries this many bytes, so that a batch of large calls does not take longer
    /// than one round trip may. The call is queued at once, also if the future is never polled: calls are large, and a
    /// future that held one would copy it once more.
    ///
    /// # Errors
    ///
    /// As [`Batcher::call`].
    pub fn submit(&self, call: C, bytes: usize) -> impl Future<Output = Result<A>> + use<C, A> {
        let pending = self.0.0.enqueue(std::iter::once(call), bytes);
        async move { pending?.wait(|replies| replies.first_mut()?.take()).await }
    }

    /// [`Batcher::call`] for several calls that happen in this order. They are queued together
    /// or, if they exceed the capacity, not at all.
    ///
    /// # Errors
    ///
    /// As [`Batcher::call`], for all of them.
    pub async fn call_all(&self, calls: Vec<C>) -> Result<Vec<A>> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let pending = self.0.0.enqueue(calls.into_iter(), 0)?;
        pending.wait(|replies| replies.iter_mut().map(Option::take).collect()).await
    }

    /// True when it takes no more calls, because it was closed or has no worker left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.0.queue.lock().closed
    }

    /// Takes no more calls. Queued calls are still done.
    pub fn close(&self) {
        self.0.0.close();
    }
}

impl<C, A> BatcherState<C, A> {
    fn enqueue(
        &self,
        calls: impl ExactSizeIterator<Item = C>,
        bytes: usize,
    ) -> Result<PendingCall<A>> {
        let count = calls.len();
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(closed());
        }
        if queue.queued + count > self.limits.queued {
            return Err(full(queue.queued, count, self.limits.queued));
        }
        queue.queued += count;
        bug!(WorkerNotWoken => {
            let tasks = std::mem::take(&mut queue.idle_tasks);
            let thread = queue.idle_threads > 0;
            drop(queue);
            let pending = self.queue.lock().push(calls, count, bytes, self.limits);
            if thread {
                self.arrived.notify_one();
            }
            tasks.into_iter().for_each(Waker::wake);
            return Ok(pending);
        });
        let pending = queue.push(calls, count, bytes, self.limits);
        let (thread, tasks) = (queue.idle_threads > 0, std::mem::take(&mut queue.idle_tasks));
        drop(queue);
        if thread {
            self.arrived.notify_one();
        }
        tasks.into_iter().for_each(Waker::wake);
        Ok(pending)
    }

    fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let tasks = std::mem::take(&mut queue.idle_tasks);
        drop(queue);
        self.arrived.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl<C, A> CallQueue<C, A> {
    /// Puts calls that were queued together into one batch, even if that exceeds its limit.
    fn push(
        &mut self,
        calls: impl Iterator<Item = C>,
        count: usize,
        bytes: usize,
        limits: BatchLimits,
    ) -> PendingCall<A> {
        let fits = |growing: &GrowingBatch<C, A>| {
            growing.calls.len() + count <= limits.batch && growing.bytes + bytes <= limits.bytes
        };
        if !self.batches.back().is_some_and(fits) {
            let size = self.last_size.max(count);
            let (calls, replies) = (Vec::with_capacity(size), Arc::new(BatchReplies::new(size)));
            self.batches.push_back(GrowingBatch { calls, bytes: 0, replies });
        }
        let growing = self.batches.back_mut().expect("one was just pushed");
        let first = growing.calls.len();
        growing.calls.extend(calls);
        growing.bytes += bytes;
        PendingCall { replies: growing.replies.clone(), positions: first..first + count }
    }

    /// Registers an idle task. A call wakes all idle tasks, since a single woken task may have been dropped meanwhile; a
    /// task that finds no call registers again.
    fn await_call<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.idle_tasks.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.idle_tasks.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// `Some(None)` when there will never be another batch.
    fn pop(&mut self) -> Option<Option<Batch<C, A>>> {
        let Some(GrowingBatch { calls, replies, .. }) = self.batches.pop_front() else {
            return self.closed.then_some(None);
        };
        self.queued -= calls.len();
        self.last_size = calls.len();
        Some(Some(Batch { calls, reply: ReplySender { replies: Some(replies) } }))
    }
}

impl<C, A> Batches<C, A> {
    /// Takes the queued calls, or blocks this thread until there are any. `None` when no call can come any more.
    pub fn take_blocking(&mut self) -> Option<Batch<C, A>> {
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(batch) = queue.pop() {
                return batch;
            }
            queue.idle_threads += 1;
            self.0.arrived.wait(&mut queue);
            queue.idle_threads -= 1;
        }
    }

    /// Takes the queued calls, or waits for them. `None` when no call can come any more. Cancel safe: a dropped
    /// future loses no call.
    pub async fn take(&mut self) -> Option<Batch<C, A>> {
        self.take_if(|| true).await
    }

    /// [`Batches::take`] for a worker that may leave calls to other workers: it takes them only if `may` returns true
    /// when a call is there. `may` is evaluated again only when another call is queued.
    pub async fn take_if(&mut self, may: impl Fn() -> bool) -> Option<Batch<C, A>> {
        poll_fn(|cx| {
            let mut queue = self.0.queue.lock();
            let taken = if queue.closed || may() { queue.pop() } else { None };
            taken.map_or_else(|| queue.await_call(cx), Poll::Ready)
        })
        .await
    }

    /// [`Batches::take`] for a task whose round trips are short. Callers that got their replies together queue their
    /// next calls one by one, and the first of them would get a round trip of its own: while the queue grows and the
    /// last batch was larger, this lets other tasks run first.
    pub async fn gather(&mut self) -> Option<Batch<C, A>> {
        poll_fn(|cx| self.poll_queued(cx)).await;
        let (mut before, mut idle_looks) = (0, 0);
        while let Some(queued) = self.growing() {
            idle_looks = if queued > before { 0 } else { idle_looks + 1 };
            before = queued;
            if idle_looks > MAX_IDLE_LOOKS {
                break;
            }
            yield_now().await;
        }
        self.take().await
    }

    /// Takes another batch if there is one for every worker.
    pub fn take_share(&mut self) -> Option<Batch<C, A>> {
        let mut queue = self.0.queue.lock();
        let plenty = queue.batches.len() >= queue.workers;
        if plenty { queue.pop().flatten() } else { None }
    }

    /// How many calls are queued, if they are fewer than in the last batch.
    fn growing(&self) -> Option<usize> {
        let queue = self.0.queue.lock();
        let few =
            queue.last_size >= MIN_GATHERED && queue.queued < queue.last_size && !queue.closed;
        few.then_some(queue.queued)
    }

    fn poll_queued(&self, cx: &Context<'_>) -> Poll<()> {
        let mut queue = self.0.queue.lock();
        if queue.batches.is_empty() && !queue.closed {
            return queue.await_call(cx);
        }
        Poll::Ready(())
    }
}

impl<A> ReplySender<A> {
    /// Sends the replies in the order of the calls. A call without a reply fails as unacknowledged.
    pub fn send(mut self, all: Vec<A>) {
        if let Some(replies) = self.replies.take() {
            replies.send(all);
        }
    }
}

impl<A> Drop for ReplySender<A> {
    fn drop(&mut self) {
        if let Some(replies) = self.replies.take() {
            replies.fail(unacknowledged());
        }
    }
}

impl<C, A> Clone for Batcher<C, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C, A> Clone for Batches<C, A> {
    fn clone(&self) -> Self {
        self.0.queue.lock().workers += 1;
        Self(self.0.clone())
    }
}

impl<C, A> Drop for CallerHandle<C, A> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<C, A> Drop for Batches<C, A> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.workers -= 1;
        if queue.workers > 0 {
            return;
        }
        queue.closed = true;
        queue.queued = 0;
        let never_taken = std::mem::take(&mut queue.batches);
        drop(queue);
        never_taken.into_iter().for_each(|growing| growing.replies.fail(closed()));
    }
}

impl<C, A> fmt::Debug for Batcher<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt("Batcher", f)
    }
}

impl<C, A> fmt::Debug for Batches<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("Batches", f)
    }
}

impl<C, A> BatcherState<C, A> {
    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("queued", &self.queue.lock().queued).finish_non_exhaustive()
    }
}

fn full(queued: usize, count: usize, limit: usize) -> Error {
    let subject = format!(
        "{queued} calls wait for the store, and {count} more would exceed the limit of {limit}; \
         send fewer at a time"
    );
    Error::new(ErrorKind::Full, subject)
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed; nothing happened")
}
