//! Runtimes and tasks on shuttle. The callers' runtime and the background runtime are one, but only the callers'
//! tasks can be shut down.

use std::{
    cell::RefCell,
    convert::Infallible,
    future::{Future, poll_fn},
    io, mem,
    sync::Arc,
    task::{Poll, Waker},
};

use shuttle::future::{AbortHandle, JoinHandle, spawn};

use super::Mutex;

thread_local! {
    /// Tasks on the callers' runtime. All tasks of a schedule are on one thread.
    static CALLERS: RefCell<Vec<AbortHandle>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Debug)]
pub struct Handle;

#[derive(Debug)]
pub struct EnterGuard;

#[derive(Debug)]
pub struct Runtime(Handle);

#[derive(Debug)]
pub struct Builder;

impl Handle {
    pub const fn try_current() -> Result<Self, Infallible> {
        Ok(Self)
    }

    pub const fn enter(&self) -> EnterGuard {
        EnterGuard
    }

    pub fn spawn<F>(&self, future: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        drop(spawn(future));
    }
}

impl Runtime {
    pub const fn handle(&self) -> &Handle {
        &self.0
    }
}

impl Builder {
    pub const fn new_multi_thread() -> Self {
        Self
    }

    pub const fn worker_threads(&mut self, _: usize) -> &mut Self {
        self
    }

    pub const fn thread_name(&mut self, _: &str) -> &mut Self {
        self
    }

    pub const fn enable_all(&mut self) -> &mut Self {
        self
    }

    pub const fn build(&mut self) -> io::Result<Runtime> {
        Ok(Runtime(Handle))
    }
}

/// Forgets the tasks of the previous schedule.
pub(super) fn begin() {
    CALLERS.take();
}

/// Shuts the callers' runtime down: each of its tasks is dropped where it waits.
pub fn shut_down_callers() {
    CALLERS.take().iter().for_each(AbortHandle::abort);
}

/// `tokio_util::task::TaskTracker` on shuttle.
#[derive(Clone, Debug, Default)]
pub struct TaskTracker(Arc<Mutex<TrackedTasks>>);

#[derive(Debug, Default)]
struct TrackedTasks {
    tasks: usize,
    closed: bool,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
pub struct TaskTrackerToken(TaskTracker);

impl TaskTracker {
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts as a task until it is dropped.
    pub fn token(&self) -> TaskTrackerToken {
        self.0.lock().tasks += 1;
        TaskTrackerToken(self.clone())
    }

    /// Spawns on the callers' runtime.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = self.spawn_on(future, &Handle);
        CALLERS.with_borrow_mut(|callers| callers.push(task.abort_handle()));
        task
    }

    /// Spawns on the background runtime.
    pub fn spawn_on<F>(&self, future: F, _: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let token = self.token();
        spawn(async move {
            let _token = token;
            future.await
        })
    }

    pub fn close(&self) {
        let mut tracked = self.0.lock();
        tracked.closed = true;
        tracked.wake_when_done();
    }

    #[expect(
        clippy::len_without_is_empty,
        reason = "the interface of the real tracker that semel uses"
    )]
    pub fn len(&self) -> usize {
        self.0.lock().tasks
    }

    pub async fn wait(&self) {
        poll_fn(|cx| {
            let mut tracked = self.0.lock();
            if tracked.closed && tracked.tasks == 0 {
                return Poll::Ready(());
            }
            tracked.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for TaskTrackerToken {
    fn drop(&mut self) {
        let mut tracked = self.0.0.lock();
        tracked.tasks -= 1;
        tracked.wake_when_done();
    }
}

impl TrackedTasks {
    fn wake_when_done(&mut self) {
        if self.closed && self.tasks == 0 {
            mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
        }
    }
}
