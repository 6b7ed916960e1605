//! Callers of one key, through the whole engine.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::join_all;
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, KeyName, Metadata, Recorder, SharedString, Unit,
};
use shuttle::future::spawn;

use super::{LEASE, YieldingStore, engine, fingerprint, key, maybe_yield, policy};
use crate::{
    Engine, RunError, State, Store, WorkError,
    background::poll_once,
    sync::{
        Instant, TimeAdvances, assert_bug_found, explore,
        planted_bugs::ScheduleBug,
        runtime::shut_down_callers,
        time::{Sleep, sleep, stand_still},
        watch,
    },
    telemetry,
};

/// In seconds: the longest wait that a policy allows.
const HOUR: u64 = 3600;

/// In seconds: a lease takes a few of them.
const STEP: u64 = 7;

type CallFuture = Pin<Box<dyn Future<Output = Result<u32, RunError>> + Send>>;

/// A call whose work waits for the gate to open and returns the number of its run.
fn call(
    engine: &Engine,
    gate: &watch::Sender<bool>,
    runs: &Arc<AtomicU32>,
    fails: bool,
) -> CallFuture {
    let (engine, mut gate, runs) = (engine.clone(), gate.subscribe(), runs.clone());
    Box::pin(async move {
        let work = async move |_| {
            let run = runs.fetch_add(1, SeqCst) + 1;
            // A dropped gate counts as open. Half of all work never waits at an open gate.
            let _open = gate.wait_for(|open| *open).await;
            maybe_yield().await;
            if fails { Err(WorkError::retry("the bank is closed")) } else { Ok(run) }
        };
        let answer = engine.run(key(), fingerprint(), work).await;
        // Dropped here, inside the schedule, and not by the test that reads the answer.
        drop(engine);
        answer.map(|answer| answer.value)
    })
}

/// Polls every call once, in this order: the first leads, the others have joined it.
async fn join(calls: &mut [CallFuture]) {
    for call in calls {
        if let Poll::Ready(answer) = poll_once(call).await {
            *call = Box::pin(ready(answer));
        }
    }
}

/// Timers that make virtual time advance in small steps for an hour: leases end meanwhile, but no caller's wait does.
fn an_hour_of_small_steps() -> Vec<Sleep> {
    let steps = (1..HOUR / STEP).map(|step| sleep(Duration::from_secs(step * STEP)));
    let armed = |mut step: Sleep| {
        let context = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut step).poll(context).is_pending(), "the step is yet to come");
        step
    };
    steps.map(armed).collect()
}

async fn a_failing_leader_and_its_followers() {
    let hour = Duration::from_secs(HOUR);
    let patient = policy().wait(hour).record_budget(hour).max_run(hour);
    let engine = engine(&YieldingStore::new()).with_policy(patient).expect("valid");
    let _steps = an_hour_of_small_steps();
    let (gate, runs) = (watch::Sender::new(false), Arc::default());
    let mut calls: Vec<_> = (0..3).map(|_| call(&engine, &gate, &runs, true)).collect();
    // Time stands still while the callers join: one that comes after the lease is lost would not follow this owner.
    let time_stands_still = stand_still();
    join(&mut calls).await;
    drop(time_stands_still);
    let calls: Vec<_> = calls.into_iter().map(spawn).collect();
    gate.send_replace(true);
    let answers = join_all(calls).await.into_iter();
    let attempts = answers.map(|answer| match answer.expect("the caller ends by itself") {
        Err(RunError::Retry(retry)) => retry.attempt,
        other => panic!("{other:?}"),
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [1; 3], "a follower gets the leader's result");
    assert_eq!(runs.load(SeqCst), 1, "followers do not claim a key that the owner released");
}

#[test]
fn followers_of_a_failing_leader_get_its_result_and_never_stampede() {
    explore(TimeAdvances::WhenIdle, a_failing_leader_and_its_followers);
}

#[test]
fn followers_do_not_stampede_however_long_any_step_takes() {
    explore(TimeAdvances::AtAnyTime, a_failing_leader_and_its_followers);
}

#[test]
fn a_follower_stampede_is_found() {
    let message = "a follower gets the leader's result";
    for time_advances in [TimeAdvances::WhenIdle, TimeAdvances::AtAnyTime] {
        assert_bug_found(
            ScheduleBug::FollowerStampede,
            time_advances,
            message,
            a_failing_leader_and_its_followers,
        );
    }
}

#[test]
fn callers_that_come_at_any_time_run_the_work_once() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        // Two engines are two processes.
        let engines = [engine(&store), engine(&store)];
        let (gate, runs) = (watch::Sender::new(true), Arc::default());
        let calls = (0..3).map(|n| spawn(call(&engines[n % 2], &gate, &runs, false)));
        for answer in join_all(calls.collect::<Vec<_>>()).await {
            let answer = answer.expect("the caller ends by itself");
            assert_eq!(answer.expect("every caller gets an answer"), 1);
        }
        assert_eq!(runs.load(SeqCst), 1);
    });
}

/// A metrics recorder that counts the gauge of waiters.
#[derive(Default)]
struct WaitersRecorder(Arc<AtomicI64>);

impl Recorder for WaitersRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &metrics::Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        if key.name() != telemetry::name::WAITERS {
            return Gauge::noop();
        }
        Gauge::from_arc(Arc::new(WaitersGauge(self.0.clone())))
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct WaitersGauge(Arc<AtomicI64>);

impl GaugeFn for WaitersGauge {
    fn increment(&self, _: f64) {
        self.0.fetch_add(1, SeqCst);
    }

    fn decrement(&self, _: f64) {
        self.0.fetch_sub(1, SeqCst);
    }

    fn set(&self, value: f64) {
        panic!("waiters are counted one by one, not set to {value}");
    }
}

#[test]
fn callers_that_go_away_are_not_counted_as_waiters_and_do_not_stop_the_work() {
    let gauge = WaitersRecorder::default();
    let waiting = gauge.0.clone();
    metrics::with_local_recorder(&gauge, || {
        explore(TimeAdvances::WhenIdle, move || {
            let waiting = waiting.clone();
            async move {
                waiting.store(0, SeqCst);
                let store = YieldingStore::new();
                let engine = engine(&store);
                let (gate, runs) = (watch::Sender::new(false), Arc::default());
                let mut calls: Vec<_> =
                    (0..4).map(|_| call(&engine, &gate, &runs, false)).collect();
                join(&mut calls).await;
                assert_eq!(waiting.load(SeqCst), 3);
                let calls: Vec<_> = calls.into_iter().map(spawn).collect();
                let aborts = [calls[0].abort_handle(), calls[2].abort_handle()];
                let aborts = aborts.map(|call| spawn(async move { call.abort() }));
                gate.send_replace(true);
                for (n, answer) in join_all(calls).await.into_iter().enumerate() {
                    match answer {
                        Ok(answer) => assert_eq!(answer.expect("answered"), 1),
                        Err(_) => assert!(n == 0 || n == 2, "only those two go away"),
                    }
                }
                for task in aborts {
                    task.await.expect("ends by itself");
                }
                assert_eq!(engine.shutdown(LEASE).await, 0);
                assert_eq!((waiting.load(SeqCst), runs.load(SeqCst)), (0, 1));
                let hash = engine.key_hash(&key());
                let sighting = store.records.get(&hash).await.expect("memory").expect("recorded");
                assert_eq!(sighting.record.state, State::Completed);
            }
        });
    });
}

#[test]
fn when_the_callers_runtime_shuts_down_every_caller_gets_an_error_and_the_key_is_given_back() {
    explore(TimeAdvances::WhenIdle, || async {
        let store = YieldingStore::new();
        let (one, other) = (engine(&store), engine(&store));
        let (gate, runs) = (watch::Sender::new(true), Arc::default());
        let calls: Vec<_> = (0..2).map(|_| spawn(call(&one, &gate, &runs, false))).collect();
        let end = spawn(async { shut_down_callers() });
        for answer in join_all(calls).await {
            match answer.expect("the caller ends by itself") {
                Ok(_) | Err(RunError::Interrupted | RunError::Store(_) | RunError::Busy { .. }) => {
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        end.await.expect("ends by itself");
        let since = Instant::now();
        // A caller that waited while the key was given back gets `Busy`, and retries.
        while let Err(error) = call(&other, &gate, &runs, false).await {
            let RunError::Busy { retry_after } = error else { panic!("{error:?}") };
            sleep(retry_after).await;
        }
        assert!(since.elapsed() < LEASE / 2, "the key is free before its lease has ended");
    });
}
