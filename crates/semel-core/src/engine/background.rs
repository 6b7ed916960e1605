//! semel's own runtime: one thread for renewal and for store calls that outlive their caller.
//!
//! It is apart from the user's, so that a handler that blocks its thread does not lose its lease.

use std::{future::Future, pin::pin, sync::OnceLock, task::Poll, time::Duration};

use futures_util::future::{BoxFuture, poll_fn};

use crate::{
    Error, ErrorKind, Result,
    sync::{
        TaskTracker, bug, oneshot,
        runtime::{Builder, Handle, Runtime},
        time::timeout,
    },
};

/// The runtime's handle. It lives as long as the process.
pub(crate) fn handle() -> &'static Handle {
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
pub(crate) async fn shielded<T: Send + 'static>(
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
pub(crate) async fn within<T: Send + 'static>(
    patience: Duration,
    mut call: BoxFuture<'static, T>,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    if let Poll::Ready(answer) = poll_once(&mut call).await {
        return Some(answer);
    }
    // Boxed: most calls never get here, and all of them would carry it.
    Box::pin(wait_within(patience, call, late)).await
}

async fn wait_within<T: Send + 'static>(
    patience: Duration,
    call: BoxFuture<'static, T>,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    let (tell, mut told) = oneshot::channel();
    handle().spawn(async move {
        if let Err(answer) = tell.send(call.await) {
            late(answer);
        }
    });
    if let Ok(answer) = timeout(patience, &mut told).await {
        return answer.ok();
    }
    bug!(LateAnswerDropped => { return None });
    // From here on an answer goes to `late`; one that came since the last look is taken.
    told.close();
    told.try_recv().ok()
}

/// Polls `future` once in the caller. Its timers belong to semel's runtime, so that it can go on there
/// when the caller's is gone.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _timers = handle().enter();
        Poll::Ready(future.as_mut().poll(cx))
    })
    .await
}
