//! Runs many calls in parallel: on threads of their own if the runtime allows, so that a store in this process has
//! real races too.

use std::{panic, sync::Barrier, thread, time::Duration};

use futures_util::future::join_all;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// A call that takes longer is deadlocked.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs all calls in parallel and returns their results in order.
pub(crate) async fn in_parallel<F>(calls: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send,
{
    let runtime = Handle::current();
    match runtime.runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(|| on_threads(&runtime, calls)),
        _ => join_all(calls.into_iter().map(bounded)).await,
    }
}

fn on_threads<F>(runtime: &Handle, calls: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send,
{
    let start = Barrier::new(calls.len());
    let start = &start;
    thread::scope(|scope| {
        let run = |call| {
            scope.spawn(move || {
                start.wait();
                runtime.block_on(bounded(call))
            })
        };
        let threads: Vec<_> = calls.into_iter().map(run).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
        };
        threads.into_iter().map(join).collect()
    })
}

async fn bounded<F: Future>(call: F) -> F::Output {
    let answer = tokio::time::timeout(CALL_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| panic!("one of many parallel calls did not return: a deadlock?"))
}
