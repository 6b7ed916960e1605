//! The batcher's promises under many schedules, with one worker on a thread and one in a task, and callers that are dropped.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use shuttle::{future::spawn, thread};

use super::{BatchLimits, Batcher, Batches};
use semel_core::{
    ErrorKind,
    sync::{TimeAdvances, assert_bug_found, explore, planted_bugs::ScheduleBug},
};

type DoublingBatcher = Batcher<u32, u32>;

/// The calls that the workers did, in their order. It adds no scheduling point.
#[derive(Clone, Default)]
struct DoneCalls(Arc<Mutex<Vec<u32>>>);

impl DoneCalls {
    fn add(&self, calls: &[u32]) {
        self.0.lock().extend(calls);
    }

    fn sorted(&self) -> Vec<u32> {
        let mut done = self.0.lock().clone();
        done.sort_unstable();
        done
    }
}

fn doubled(calls: &[u32]) -> Vec<u32> {
    calls.iter().map(|n| n * 2).collect()
}

/// A worker on a thread, until no call can come any more.
fn work_on_a_thread(mut batches: Batches<u32, u32>, done: DoneCalls) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Some(batch) = batches.take_blocking() {
            done.add(&batch.calls);
            batch.reply.send(doubled(&batch.calls));
        }
    })
}

/// A worker in a task, until no call can come any more.
async fn work_in_a_task(mut batches: Batches<u32, u32>, done: DoneCalls) {
    while let Some(batch) = batches.take().await {
        assert!(batch.calls.len() <= 2, "a batch is over its limit");
        done.add(&batch.calls);
        batch.reply.send(doubled(&batch.calls));
    }
}

fn start(queued: usize) -> (DoublingBatcher, DoneCalls, impl Future<Output = ()>) {
    let (batcher, batches) =
        DoublingBatcher::new(BatchLimits { batch: 2, queued, ..BatchLimits::default() });
    let done = DoneCalls::default();
    let thread = work_on_a_thread(batches.clone(), done.clone());
    let task = spawn(work_in_a_task(batches, done.clone()));
    let ended = async move {
        task.await.expect("the task ends by itself");
        thread.join().expect("the thread ends by itself");
    };
    (batcher, done, ended)
}

/// Polls a call once and drops it.
fn poll_and_drop(call: impl Future) {
    let _unheard = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
}

async fn callers_and_two_workers() {
    let (batcher, done, ended) = start(100);
    let callers = [vec![1], vec![2, 3], vec![4]].map(|calls| {
        let batcher = batcher.clone();
        spawn(async move {
            let expected = doubled(&calls);
            let answers = match calls[..] {
                [one] => vec![batcher.call(one).await.expect("answered")],
                _ => batcher.call_all(calls).await.expect("answered"),
            };
            assert_eq!(answers, expected, "every caller gets the answers to its own calls");
        })
    });
    for caller in join_all(callers).await {
        caller.expect("the caller ends by itself");
    }
    drop(batcher);
    ended.await;
    assert_eq!(done.sorted(), [1, 2, 3, 4], "every call happens once");
}

#[test]
fn every_call_happens_once_and_its_caller_gets_its_reply() {
    explore(TimeAdvances::WhenIdle, callers_and_two_workers);
}

#[test]
fn the_planted_bug_of_a_worker_that_is_not_woken_is_found() {
    assert_bug_found(
        ScheduleBug::WorkerNotWoken,
        TimeAdvances::WhenIdle,
        "deadlock",
        callers_and_two_workers,
    );
}

/// Polls each call once, then moves it to a new task, as the engine does with calls to a store.
async fn calls_that_move_to_another_task() {
    let (batcher, done, ended) = start(100);
    let callers = [1, 2].map(|n| {
        let batcher = batcher.clone();
        spawn(async move {
            let mut call = Box::pin(async move { batcher.call(n).await });
            let answer = match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
                Poll::Ready(answer) => answer,
                Poll::Pending => spawn(call).await.expect("the call ends by itself"),
            };
            assert_eq!(answer.expect("answered"), n * 2);
        })
    });
    for caller in join_all(callers).await {
        caller.expect("the caller ends by itself");
    }
    drop(batcher);
    ended.await;
    assert_eq!(done.sorted(), [1, 2]);
}

#[test]
fn a_call_that_moves_to_another_task_gets_its_reply_there() {
    explore(TimeAdvances::WhenIdle, calls_that_move_to_another_task);
}

#[test]
fn the_planted_bug_of_an_outdated_waker_is_found() {
    assert_bug_found(
        ScheduleBug::WakerNotUpdated,
        TimeAdvances::WhenIdle,
        "deadlock",
        calls_that_move_to_another_task,
    );
}

#[test]
fn a_queued_call_happens_although_its_caller_is_dropped() {
    explore(TimeAdvances::WhenIdle, || async {
        let (batcher, done, ended) = start(100);
        let callers = [1, 2, 3].map(|n| {
            let batcher = batcher.clone();
            spawn(async move {
                match n {
                    2 => assert_eq!(batcher.call(2).await.expect("answered"), 4),
                    _ => poll_and_drop(batcher.call(n)),
                }
            })
        });
        drop(batcher);
        for caller in join_all(callers).await {
            caller.expect("the caller ends by itself");
        }
        ended.await;
        assert_eq!(done.sorted(), [1, 2, 3]);
    });
}

#[test]
fn a_refused_call_never_happens_and_a_queued_one_always_does() {
    explore(TimeAdvances::WhenIdle, || async {
        let (batcher, done, ended) = start(2);
        let callers = [1, 2, 3, 4].map(|n| {
            let batcher = batcher.clone();
            spawn(async move {
                let answer = batcher.call(n).await;
                let refused = answer.as_ref().err().map(semel_core::Error::kind);
                assert!(matches!(refused, None | Some(ErrorKind::Full | ErrorKind::Closed)));
                answer.is_ok().then_some(n)
            })
        });
        let closer = spawn(async move { batcher.close() });
        let answered = join_all(callers).await.into_iter();
        let answered: Vec<_> = answered.filter_map(|n| n.expect("ends by itself")).collect();
        closer.await.expect("ends by itself");
        ended.await;
        assert_eq!(done.sorted(), answered);
    });
}

#[test]
fn when_the_workers_end_every_caller_learns_whether_its_call_may_have_happened() {
    explore(TimeAdvances::WhenIdle, || async {
        let (batcher, batches) =
            DoublingBatcher::new(BatchLimits { batch: 2, queued: 100, ..BatchLimits::default() });
        let done = DoneCalls::default();
        let (mut one, mut other) = (batches.clone(), batches);
        let (did, may_have_done) = (done.clone(), DoneCalls::default());
        let half_way = may_have_done.clone();
        let vanishes = spawn(async move {
            let Some(batch) = one.take().await else { return };
            half_way.add(&batch.calls);
        });
        let answers_one = thread::spawn(move || {
            let Some(batch) = other.take_blocking() else { return };
            did.add(&batch.calls);
            batch.reply.send(doubled(&batch.calls));
        });
        let callers = [1, 2, 3, 4].map(|n| {
            let batcher = batcher.clone();
            spawn(async move { (n, batcher.call(n).await.map_err(|error| error.kind())) })
        });
        for caller in join_all(callers).await {
            let (n, answer) = caller.expect("the caller ends by itself");
            let done = done.0.lock().contains(&n);
            let begun = may_have_done.0.lock().contains(&n);
            match answer {
                Ok(double) => assert!(done && double == n * 2),
                Err(ErrorKind::Unavailable) => assert!(begun),
                Err(ErrorKind::Closed) => {
                    assert!(!done && !begun, "the error says that nothing happened")
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        drop(batcher);
        vanishes.await.expect("ends by itself");
        answers_one.join().expect("ends by itself");
    });
}

/// A worker that is woken for a call and dropped must not lose the wake-up.
#[test]
fn a_dropped_worker_does_not_lose_the_wake_up_of_another() {
    explore(TimeAdvances::WhenIdle, || async {
        let (batcher, mut stays) =
            DoublingBatcher::new(BatchLimits { batch: 2, queued: 100, ..BatchLimits::default() });
        let mut leaves = stays.clone();
        let leaver = spawn(async move {
            let mut take = pin!(leaves.take());
            let first = take.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(Some(batch)) = first {
                batch.reply.send(doubled(&batch.calls));
            }
        });
        let stayer = spawn(async move {
            while let Some(batch) = stays.take().await {
                batch.reply.send(doubled(&batch.calls));
            }
        });
        for n in [1, 2] {
            assert_eq!(batcher.call(n).await.expect("answered"), n * 2);
        }
        drop(batcher);
        leaver.await.expect("ends by itself");
        stayer.await.expect("ends by itself");
    });
}
