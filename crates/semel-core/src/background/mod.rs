//! semel's own runtime: one thread for renewal and for store calls that outlive their caller.
//!
//! It is apart from the user's, so that a handler that blocks its thread does not lose its lease.

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

/// What takes longer than this to be read did not come in time.
pub(crate) const UNREAD: Duration = Duration::from_millis(20);

/// The runtime's handle. It lives as long as the process.
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

/// Runs `future`, which has been polled once, to its end even if the caller goes away.
pub async fn shielded<T: Send + 'static>(
    tasks: &TaskTracker,
    future: BoxFuture<'static, T>,
) -> Result<T> {
    tasks.spawn_on(future, handle()).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "a store call did not come to its end")
            .with_source(error)
    })
}

/// Begins `call` here, and leaves the rest of it to semel's runtime.
pub(crate) async fn begun(mut call: BoxFuture<'static, ()>) {
    if poll_once(&mut call).await.is_pending() {
        handle().spawn(call);
    }
}

/// Waits for a store call for `patience` at most. The call itself is never broken off: when nobody
/// waits for it any more, `late` gets its answer.
pub async fn within<T: Send + 'static>(
    patience: Duration,
    mut call: BoxFuture<'static, T>,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    if let Poll::Ready(answer) = poll_once(&mut call).await {
        return Some(answer);
    }
    let continue_with = Box::new(|call: BoxFuture<'static, T>| {
        bug!(LateAnswerDropped => { return });
        handle().spawn(async move { late(call.await) });
    });
    // Boxed: most calls never get here, and all of them would carry it.
    Box::pin(ContinueOnDrop::new(call, continue_with).within(patience)).await.flatten()
}

/// Waits for an answer for so long at most, and for one that has come and is not read yet, because the runtime was
/// busy meanwhile.
pub async fn timeout_with_grace<F: Future + Unpin>(
    patience: Duration,
    mut call: F,
) -> Option<F::Output> {
    match timeout(patience, &mut call).await {
        Ok(answer) => Some(answer),
        Err(_) => timeout(UNREAD, call).await.ok(),
    }
}

/// A call that is not broken off: whoever waits for it polls it, and when they go away it goes on elsewhere.
/// Answers `None` if it panicked.
pub struct ContinueOnDrop<T>(Option<(BoxFuture<'static, T>, ContinueFn<T>)>);

type ContinueFn<T> = Box<dyn FnOnce(BoxFuture<'static, T>) + Send>;

impl<T> ContinueOnDrop<T> {
    pub fn new(call: BoxFuture<'static, T>, continue_with: ContinueFn<T>) -> Self {
        Self(Some((call, continue_with)))
    }

    /// Waits for so long at most.
    pub async fn within(self, patience: Duration) -> Option<Option<T>> {
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
        // Out of its place meanwhile: what panicked, or has answered, does not go on.
        let Some((mut call, continue_with)) = self.0.take() else { return Poll::Ready(None) };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| poll_here(call.as_mut(), cx)));
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
    poll_fn(|cx| Poll::Ready(poll_here(future.as_mut(), cx))).await
}

/// Polls in the caller. Timers belong to semel's runtime, so that it can go on there when the caller's is gone.
fn poll_here<F: Future + ?Sized>(future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    let _caller = caller_runtime::noted();
    let _timers = handle().enter();
    future.poll(cx)
}
