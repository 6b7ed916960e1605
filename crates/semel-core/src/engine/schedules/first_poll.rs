//! The first poll of the work happens in the caller's task; if the work has to wait, it continues in its own task.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use futures_util::future::join_all;
use shuttle::{future::spawn, thread};

use super::{LEASE, YieldingStore, engine, fingerprint, key, maybe_yield};
use crate::{
    Engine, State, Store, WorkError,
    background::poll_once,
    engine::singleflight::CallRole,
    sync::{TimeAdvances, assert_bug_found, explore, planted_bugs::ScheduleBug, watch},
};

/// How often the work has started and ended.
#[derive(Clone)]
struct WorkProgress {
    started: Arc<watch::Sender<u32>>,
    ended: Arc<AtomicU32>,
}

impl WorkProgress {
    fn new() -> Self {
        Self { started: Arc::new(watch::Sender::new(0)), ended: Arc::default() }
    }

    /// Other tasks run during its first poll, and half of all runs have to wait.
    async fn work(self) -> Result<u32, WorkError> {
        let run = *self.started.borrow() + 1;
        self.started.send_replace(run);
        thread::yield_now();
        maybe_yield().await;
        thread::yield_now();
        self.ended.fetch_add(1, SeqCst);
        Ok(run)
    }

    async fn call(self, engine: Engine) -> u32 {
        let answer = engine.run(key(), fingerprint(), move |_| self.work()).await;
        // Dropped here, inside the schedule, and not by the test that reads the answer.
        drop(engine);
        answer.expect("every caller gets an answer").value
    }
}

async fn a_caller_that_is_gone_after_the_first_poll() {
    let (store, progress) = (YieldingStore::new(), WorkProgress::new());
    let engine = engine(&store);
    let mut call = Box::pin(progress.clone().call(engine.clone()));
    let first = poll_once(&mut call).await;
    drop((call, first));
    assert_eq!(engine.shutdown(LEASE).await, 0, "work that has started is finished");
    let (started, ended) = (*progress.started.borrow(), progress.ended.load(SeqCst));
    assert_eq!((started, ended), (1, 1), "the work does not end with its caller");
    let sighting = store.records.get(&engine.key_hash(&key())).await.expect("memory");
    assert_eq!(sighting.expect("claimed").record.state, State::Completed);
}

#[test]
fn work_goes_on_when_its_caller_is_gone_after_the_first_poll() {
    explore(TimeAdvances::WhenIdle, a_caller_that_is_gone_after_the_first_poll);
}

#[test]
fn work_that_runs_in_the_callers_task_is_found() {
    let message = "the work does not end with its caller";
    let scenario = a_caller_that_is_gone_after_the_first_poll;
    assert_bug_found(ScheduleBug::WorkRunInCallersTask, TimeAdvances::WhenIdle, message, scenario);
}

#[test]
fn a_follower_that_joins_during_the_first_poll_gets_the_result() {
    explore(TimeAdvances::WhenIdle, || async {
        let (store, progress) = (YieldingStore::new(), WorkProgress::new());
        let engine = engine(&store);
        let calls = (0..3).map(|_| spawn(progress.clone().call(engine.clone())));
        for answer in join_all(calls.collect::<Vec<_>>()).await {
            assert_eq!(answer.expect("the caller ends by itself"), 1);
        }
        assert_eq!(progress.ended.load(SeqCst), 1);
        let request = engine.claim_request(&key(), &fingerprint().into());
        let role = engine.inner.in_flight.join((request.key, request.fingerprint));
        assert!(matches!(role, CallRole::Leader(_)), "no call is left in the map");
        assert_eq!(engine.shutdown(LEASE).await, 0);
    });
}

async fn a_shutdown_while_the_work_is_polled_by_its_caller() {
    let (store, progress) = (YieldingStore::new(), WorkProgress::new());
    let engine = engine(&store);
    let caller = spawn(progress.clone().call(engine.clone()));
    let mut started = progress.started.subscribe();
    started.wait_for(|run| *run == 1).await.expect("the work starts");
    let left = engine.shutdown(LEASE).await;
    let ended = progress.ended.load(SeqCst);
    assert_eq!((left, ended), (0, 1), "a shutdown waits for work that has started");
    assert_eq!(caller.await.expect("the caller ends by itself"), 1);
}

#[test]
fn a_shutdown_waits_for_work_that_is_polled_by_its_caller() {
    explore(TimeAdvances::WhenIdle, a_shutdown_while_the_work_is_polled_by_its_caller);
}

#[test]
fn a_shutdown_that_does_not_wait_for_the_first_poll_is_found() {
    let message = "a shutdown waits for work that has started";
    let scenario = a_shutdown_while_the_work_is_polled_by_its_caller;
    assert_bug_found(ScheduleBug::WorkRunInCallersTask, TimeAdvances::WhenIdle, message, scenario);
}
