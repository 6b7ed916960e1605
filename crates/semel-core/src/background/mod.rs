//! The background runtime: one thread of semel's own, for renewals and for store calls that outlive their caller.
//!
//! It is separate from the application's runtime, so that work that blocks its thread does not lose its lease.

use std::{
    fmt,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::{Pin, pin},
    sync::OnceLock,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, poll_fn};

pub mod caller_runtime;

use crate::{
    Error, ErrorKind, Result,
    sync::{
        TaskTracker, bug,
        runtime::{Builder, Handle, Runtime},
        time::timeout,
    },
};

/// After a timeout, this long a reply is still accepted that had arrived in time and was not read yet.
pub(crate) const READ_GRACE: Duration = Duration::from_millis(20);

/// The handle of the background runtime, which lives as long as the process.
pub fn handle() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("semel")
                .enable_all()
                .build()
                .expect("the system can start one thread")
        })
        .handle()
}

/// Runs `future` to its end on the background runtime, even if the caller goes away.
pub async fn run_to_completion<T: Send + 'static>(
    tasks: &TaskTracker,
    future: BoxFuture<'static, T>,
) -> Result<T> {
    tasks.spawn_on(future, handle()).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "a store call did not come to its end")
            .with_source(error)
    })
}

/// Polls `call` once in the caller, and spawns the rest of it on the background runtime.
pub(crate) async fn poll_then_spawn(mut call: BoxFuture<'static, ()>) {
    if poll_once(&mut call).await.is_pending() {
        handle().spawn(call);
    }
}

/// Waits for a store call for `patience` at most. A timeout does not cancel the call: it continues on the background
/// runtime, and `late` gets its reply. The same happens if the caller goes away.
pub async fn timeout_without_cancel<T: Send + 'static>(
    patience: Duration,
    mut call: BoxFuture<'static, T>,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    if let Poll::Ready(reply) = poll_once(&mut call).await {
        return Some(reply);
    }
    let continue_with = Box::new(|call: BoxFuture<'static, T>| {
        bug!(LateReplyDropped => { return });
        handle().spawn(async move { late(call.await) });
    });
    // Boxed, since most calls never get here, and it would make every caller's future larger.
    Box::pin(ContinueOnDrop::new(call, continue_with).timeout(patience)).await.flatten()
}

/// Waits for a reply for `patience` at most. A reply that arrived in time but was not read, because the runtime was
/// busy, still counts.
pub async fn timeout_with_grace<F: Future + Unpin>(
    patience: Duration,
    mut call: F,
) -> Option<F::Output> {
    match timeout(patience, &mut call).await {
        Ok(reply) => Some(reply),
        Err(_) => timeout(READ_GRACE, call).await.ok(),
    }
}

/// A call that is polled by the task that waits for it. If that task drops it, the call is handed to `continue_with`.
/// Returns `None` if the call panicked.
pub struct ContinueOnDrop<T>(Option<(BoxFuture<'static, T>, ContinueFn<T>)>);

type ContinueFn<T> = Box<dyn FnOnce(BoxFuture<'static, T>) + Send>;

impl<T> ContinueOnDrop<T> {
    pub fn new(call: BoxFuture<'static, T>, continue_with: ContinueFn<T>) -> Self {
        Self(Some((call, continue_with)))
    }

    /// Waits for `patience` at most.
    pub async fn timeout(self, patience: Duration) -> Option<Option<T>> {
        timeout_with_grace(patience, self).await
    }
}

impl<T> fmt::Debug for ContinueOnDrop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContinueOnDrop").finish_non_exhaustive()
    }
}

impl<T> Future for ContinueOnDrop<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // Taken out while it is polled: a call that panicked or is ready must not be polled again.
        let Some((mut call, continue_with)) = self.0.take() else { return Poll::Ready(None) };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| poll_in_caller(call.as_mut(), cx)));
        if let Ok(Poll::Pending) = polled {
            self.0 = Some((call, continue_with));
        }
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    }
}

impl<T> Drop for ContinueOnDrop<T> {
    fn drop(&mut self) {
        if let Some((call, continue_with)) = self.0.take() {
            continue_with(call);
        }
    }
}

/// Polls `future` once in the caller.
pub async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(poll_in_caller(future.as_mut(), cx))).await
}

/// Polls in the caller, with the background runtime entered: timers belong to it, so that the call can continue there
/// when the caller's runtime is gone.
fn poll_in_caller<F: Future + ?Sized>(
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let _caller = caller_runtime::remember();
    let _timers = handle().enter();
    future.poll(cx)
}
