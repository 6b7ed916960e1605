//! Work that is polled where it was asked for: until it waits, the caller's own thread runs it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use futures_util::future::join_all;
use shuttle::{future::spawn, thread};

use super::{LEASE, Remote, asked, engine, key, trip};
use crate::{
    Engine, State, Store, WorkError,
    background::poll_once,
    engine::singleflight::Boarding,
    sync::{Pace, caught, explore, planted_bugs::Bug, watch},
};

/// How far the work is.
#[derive(Clone)]
struct Progress {
    started: Arc<watch::Sender<u32>>,
    ended: Arc<AtomicU32>,
}

impl Progress {
    fn new() -> Self {
        Self { started: Arc::new(watch::Sender::new(0)), ended: Arc::default() }
    }

    /// Others get their turn while it is polled for the first time, and half of it has to wait.
    async fn work(self) -> Result<u32, WorkError> {
        let run = *self.started.borrow() + 1;
        self.started.send_replace(run);
        thread::yield_now();
        trip().await;
        thread::yield_now();
        self.ended.fetch_add(1, SeqCst);
        Ok(run)
    }

    async fn call(self, engine: Engine) -> u32 {
        let answer = engine.run(key(), asked(), move |_| self.work()).await;
        // Dropped here, in the schedule, and not by whoever reads the answer.
        drop(engine);
        answer.expect("everybody is answered").value
    }
}

async fn a_caller_that_is_gone_after_the_first_poll() {
    let (store, progress) = (Remote::new(), Progress::new());
    let engine = engine(&store);
    let mut call = Box::pin(progress.clone().call(engine.clone()));
    let first = poll_once(&mut call).await;
    drop((call, first));
    assert_eq!(engine.shutdown(LEASE).await, 0, "whatever was begun is ended");
    let (started, ended) = (*progress.started.borrow(), progress.ended.load(SeqCst));
    assert_eq!((started, ended), (1, 1), "the work does not go with its caller");
    let seen = store.records.get(&engine.key_hash(&key())).await.expect("memory");
    assert_eq!(seen.expect("claimed").record.state, State::Completed);
}

#[test]
fn a_caller_that_is_gone_after_the_first_poll_takes_no_work_with_it() {
    explore(Pace::WhenIdle, a_caller_that_is_gone_after_the_first_poll);
}

#[test]
fn a_caller_that_flies_itself_takes_the_work_with_it_and_is_caught() {
    let says = "the work does not go with its caller";
    let story = a_caller_that_is_gone_after_the_first_poll;
    caught(Bug::FlownByTheCaller, Pace::WhenIdle, says, story);
}

#[test]
fn whoever_boards_while_the_work_is_polled_by_its_caller_gets_its_answer() {
    explore(Pace::WhenIdle, || async {
        let (store, progress) = (Remote::new(), Progress::new());
        let engine = engine(&store);
        let calls = (0..3).map(|_| spawn(progress.clone().call(engine.clone())));
        for answer in join_all(calls.collect::<Vec<_>>()).await {
            assert_eq!(answer.expect("the caller ends by itself"), 1);
        }
        assert_eq!(progress.ended.load(SeqCst), 1);
        let request = engine.claim_request(&key(), &asked().into());
        let boarding = engine.inner.flights.board((request.key, request.fingerprint));
        assert!(matches!(boarding, Boarding::Lead(_)), "no flight is left on the map");
        assert_eq!(engine.shutdown(LEASE).await, 0);
    });
}

async fn a_shutdown_while_the_work_is_polled_by_its_caller() {
    let (store, progress) = (Remote::new(), Progress::new());
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
    explore(Pace::WhenIdle, a_shutdown_while_the_work_is_polled_by_its_caller);
}

#[test]
fn a_shutdown_that_overlooks_what_callers_poll_is_caught() {
    let says = "a shutdown waits for work that has started";
    let story = a_shutdown_while_the_work_is_polled_by_its_caller;
    caught(Bug::FlownByTheCaller, Pace::WhenIdle, says, story);
}
