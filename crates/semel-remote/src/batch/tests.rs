use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use futures_util::future::join_all;

use super::*;
use semel_core::ErrorKind;

type EchoBatcher = Batcher<u32, u32>;

fn limits(batch: usize, queued: usize) -> BatchLimits {
    BatchLimits { batch, queued, ..BatchLimits::default() }
}

/// A worker that replies to each call with the call itself. It returns the sizes of its batches.
fn echo(mut batches: Batches<u32, u32>) -> thread::JoinHandle<Vec<usize>> {
    thread::spawn(move || {
        let mut sizes = Vec::new();
        while let Some(batch) = batches.take_blocking() {
            sizes.push(batch.calls.len());
            batch.reply.send(batch.calls);
        }
        sizes
    })
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_gets_its_own_reply() {
    let (batcher, batches) = EchoBatcher::new(limits(7, 10_000));
    let worker = echo(batches);
    let answers = join_all((0..5_000).map(|n| batcher.call(n))).await;
    assert!(answers.iter().enumerate().all(|(n, answer)| *answer.as_ref().unwrap() as usize == n));
    drop(batcher);
    let sizes = worker.join().unwrap();
    assert_eq!(sizes.iter().sum::<usize>(), 5_000);
    assert!(sizes.iter().all(|size| *size <= 7), "no batch is over its limit");
}

#[test]
fn calls_queued_while_the_worker_is_busy_are_one_batch() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let calls: Vec<_> = (0..100).map(|n| Box::pin(batcher.call(n))).collect();
    join(calls, |pending| {
        assert_eq!(pending, 100);
        let batch = batches.take_blocking().unwrap();
        assert_eq!(batch.calls, (0..100).collect::<Vec<_>>());
        batch.reply.send(batch.calls);
    });
}

/// Polls all calls once, lets `answer` send the replies, and polls again: all calls must be done then.
fn join<F: Future + Unpin>(mut calls: Vec<F>, answer: impl FnOnce(usize)) {
    let pending = calls.iter_mut().map(poll_once).filter(Poll::is_pending).count();
    answer(pending);
    assert!(calls.iter_mut().all(|call| poll_once(call).is_ready()));
}

#[test]
fn a_caller_is_woken_once_however_many_calls_it_made() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let wakes = Arc::new(WakeCounter::default());
    let waker = Waker::from(wakes.clone());
    let mut call = pin!(batcher.call_all((0..50).collect()));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let batch = batches.take_blocking().unwrap();
    batch.reply.send(batch.calls);
    assert_eq!(wakes.0.load(Relaxed), 1);
    let Poll::Ready(answers) = poll_once(call) else { panic!("answered") };
    assert_eq!(answers.unwrap(), (0..50).collect::<Vec<_>>());
}

#[test]
fn the_task_that_polled_last_is_woken() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let mut call = pin!(batcher.call(1));
    let [first, last] = [(); 2].map(|()| Arc::new(WakeCounter::default()));
    for wakes in [&first, &last] {
        let waker = Waker::from(wakes.clone());
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let batch = batches.take_blocking().unwrap();
    batch.reply.send(batch.calls);
    assert_eq!([first, last].map(|wakes| wakes.0.load(Relaxed)), [0, 1]);
    assert!(matches!(poll_once(call), Poll::Ready(Ok(1))));
}

#[test]
fn a_queued_call_happens_although_its_caller_is_dropped() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    assert!(poll_once(batcher.call(1)).is_pending());
    let batch = batches.take_blocking().unwrap();
    assert_eq!(batch.calls, [1]);
    batch.reply.send(batch.calls);
}

#[test]
fn a_call_that_was_never_polled_does_not_happen() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    drop(batcher.call(1));
    drop(batcher);
    assert!(batches.take_blocking().is_none());
}

#[test]
fn calls_beyond_the_limit_are_refused_and_do_not_happen() {
    let (batcher, mut batches) = EchoBatcher::new(limits(10, 3));
    let mut calls: Vec<_> = (0..3).map(|n| Box::pin(batcher.call(n))).collect();
    assert!(calls.iter_mut().all(|call| poll_once(call).is_pending()));
    let Poll::Ready(Err(error)) = poll_once(batcher.call(3)) else { panic!("refused") };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert_eq!(batches.take_blocking().unwrap().calls, [0, 1, 2]);
    assert!(poll_once(batcher.call(4)).is_pending(), "there is room again");
}

#[test]
fn a_batch_without_replies_may_have_happened() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let calls: Vec<_> = (0..2).map(|n| Box::pin(batcher.call(n))).collect();
    join(calls, |_| drop(batches.take_blocking()));
    let mut call = Box::pin(batcher.call(3));
    assert!(poll_once(&mut call).is_pending());
    drop(batches.take_blocking());
    let Poll::Ready(Err(error)) = poll_once(call) else { panic!("no error") };
    assert!(error.kind().is_indefinite());
}

#[test]
fn a_call_that_no_worker_took_did_not_happen() {
    let (batcher, batches) = EchoBatcher::new(BatchLimits::default());
    let mut call = Box::pin(batcher.call(1));
    assert!(poll_once(&mut call).is_pending());
    drop(batches);
    for call in [call, Box::pin(batcher.call(2))] {
        let Poll::Ready(Err(error)) = poll_once(call) else { panic!("no error") };
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

/// Another worker may have become able to take the call since this worker last looked.
#[test]
fn take_if_evaluates_its_condition_when_a_call_is_there() {
    let (calls, mut batches) = Batcher::<u32, u32>::new(limits(10, 10));
    let may = std::cell::Cell::new(true);
    let mut taking = Box::pin(batches.take_if(|| may.get()));
    assert!(poll_once(&mut taking).is_pending());
    may.set(false);
    let mut call = Box::pin(calls.call(1));
    assert!(poll_once(&mut call).is_pending());
    assert!(poll_once(&mut taking).is_pending(), "it is left to others");
    may.set(true);
    let Poll::Ready(Some(batch)) = poll_once(&mut taking) else { panic!("it is taken") };
    assert_eq!(batch.calls, [1]);
}

#[test]
fn a_closed_queue_does_its_queued_calls_and_takes_no_more() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let mut call = Box::pin(batcher.call(1));
    assert!(poll_once(&mut call).is_pending());
    batcher.close();
    assert!(poll_once(batcher.call(2)).is_ready());
    let batch = batches.take_blocking().unwrap();
    batch.reply.send(batch.calls);
    assert!(batches.take_blocking().is_none());
    assert!(matches!(poll_once(call), Poll::Ready(Ok(1))));
}

#[tokio::test]
async fn two_tasks_have_two_batches_in_flight() {
    let (batcher, mut one) = EchoBatcher::new(BatchLimits::default());
    let mut other = one.clone();
    let callers = tokio::spawn({
        let batcher = batcher.clone();
        async move { tokio::join!(batcher.call(1), async { batcher.call(2).await }) }
    });
    let first = one.take().await.unwrap();
    let again = tokio::spawn(async move { batcher.call(3).await });
    let second = other.take().await.unwrap();
    second.reply.send(second.calls);
    assert_eq!(again.await.unwrap().unwrap(), 3);
    first.reply.send(first.calls);
    let (one, two) = callers.await.unwrap();
    assert_eq!((one.unwrap(), two.unwrap()), (1, 2));
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_does_not_keep_other_callers_asleep() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let (mut one, mut other) = (Box::pin(batcher.call(1)), Box::pin(batcher.call(2)));
    let (panics, wakes) = (Waker::from(Arc::new(Panics)), Arc::new(WakeCounter::default()));
    let counted = Waker::from(wakes.clone());
    assert!(one.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    assert!(other.as_mut().poll(&mut Context::from_waker(&counted)).is_pending());
    let batch = batches.take_blocking().unwrap();
    thread::spawn(move || batch.reply.send(batch.calls)).join().unwrap_err();
    assert_eq!(wakes.0.load(Relaxed), 1);
}

#[tokio::test]
async fn callers_that_got_their_replies_together_are_gathered_again() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let caller = |n| {
        let batcher = batcher.clone();
        tokio::spawn(async move {
            for round in 0..3 {
                assert_eq!(batcher.call(n).await.unwrap(), n, "round {round}");
            }
        })
    };
    let callers: Vec<_> = (0..20).map(caller).collect();
    tokio::task::yield_now().await;
    for _ in 0..3 {
        let batch = batches.gather().await.unwrap();
        assert_eq!(batch.calls.len(), 20, "none of them has a trip of its own");
        batch.reply.send(batch.calls);
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn a_single_call_after_a_large_batch_is_taken() {
    let (batcher, mut batches) = EchoBatcher::new(BatchLimits::default());
    let crowd = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.call_all((0..50).collect()).await }
    });
    let batch = batches.gather().await.unwrap();
    batch.reply.send(batch.calls);
    crowd.await.unwrap().unwrap();
    let alone = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.call(7).await }
    });
    let batch = batches.gather().await.unwrap();
    assert_eq!(batch.calls, [7]);
    batch.reply.send(batch.calls);
    assert_eq!(alone.await.unwrap().unwrap(), 7);
    drop(batcher);
    assert!(batches.gather().await.is_none(), "no caller is left");
}

#[test]
fn a_worker_takes_a_second_batch_only_if_there_is_one_for_every_worker() {
    let (batcher, mut one) = EchoBatcher::new(limits(1, 100));
    let mut other = one.clone();
    let mut calls: Vec<_> = (0..4).map(|n| Box::pin(batcher.call(n))).collect();
    assert!(calls.iter_mut().all(|call| poll_once(call).is_pending()));
    let taken = [one.take_blocking(), one.take_share(), one.take_share()];
    assert_eq!(
        taken.map(|batch| batch.map(|batch| batch.calls)),
        [Some(vec![0]), Some(vec![1]), Some(vec![2])]
    );
    assert!(one.take_share().is_none(), "the last one is the other's");
    assert_eq!(other.take_blocking().unwrap().calls, [3]);
}

#[test]
fn calls_of_many_bytes_are_split_into_batches() {
    let (batcher, mut batches) =
        EchoBatcher::new(BatchLimits { bytes: 10, ..BatchLimits::default() });
    let weights = [(1, 6), (2, 4), (3, 0), (4, 7), (5, 99), (6, 0)];
    let mut calls: Vec<_> = weights.map(|(n, bytes)| Box::pin(batcher.submit(n, bytes))).into();
    assert!(calls.iter_mut().all(|call| poll_once(call).is_pending()));
    let mut take = || batches.take_blocking().unwrap().calls;
    assert_eq!([take(), take(), take(), take()], [vec![1, 2, 3], vec![4], vec![5], vec![6]]);
}
