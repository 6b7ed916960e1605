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

use super::{LEASE, Remote, asked, engine, key, policy, trip};
use crate::{
    Engine, RunError, State, Store, WorkError,
    background::poll_once,
    sync::{
        Instant, Pace, caught, explore,
        planted_bugs::Bug,
        runtime::shut_down_callers,
        time::{Sleep, sleep, stand_still},
        watch,
    },
    telemetry,
};

/// In seconds: as long as a policy lets anybody wait.
const HOUR: u64 = 3600;

/// In seconds: a few of them are a lease.
const STEP: u64 = 7;

type Called = Pin<Box<dyn Future<Output = Result<u32, RunError>> + Send>>;

/// Work that says which run it is, once the gate is open.
fn call(engine: &Engine, gate: &watch::Sender<bool>, runs: &Arc<AtomicU32>, fails: bool) -> Called {
    let (engine, mut gate, runs) = (engine.clone(), gate.subscribe(), runs.clone());
    Box::pin(async move {
        let work = async move |_| {
            let run = runs.fetch_add(1, SeqCst) + 1;
            // Gone is as good as open. Half of all work never waits at an open gate.
            let _open = gate.wait_for(|open| *open).await;
            trip().await;
            if fails { Err(WorkError::retry("the bank is closed")) } else { Ok(run) }
        };
        let answer = engine.run(key(), asked(), work).await;
        // Dropped here, in the schedule, and not by whoever reads the answer.
        drop(engine);
        answer.map(|answer| answer.value)
    })
}

/// Polls every call once, in this order: the first leads, the others have joined it.
async fn join(calls: &mut [Called]) {
    for call in calls {
        if let Poll::Ready(answer) = poll_once(call).await {
            *call = Box::pin(ready(answer));
        }
    }
}

/// Time goes in small steps for an hour: leases run out here, but nobody's patience does.
fn an_hour_of_small_steps() -> Vec<Sleep> {
    let steps = (1..HOUR / STEP).map(|step| sleep(Duration::from_secs(step * STEP)));
    let armed = |mut step: Sleep| {
        let context = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut step).poll(context).is_pending(), "the step is yet to come");
        step
    };
    steps.map(armed).collect()
}

async fn a_failing_owner_and_its_waiters() {
    let hour = Duration::from_secs(HOUR);
    let patient = policy().wait(hour).record_budget(hour).max_run(hour);
    let engine = engine(&Remote::new()).with_policy(patient).expect("valid");
    let _steps = an_hour_of_small_steps();
    let (gate, runs) = (watch::Sender::new(false), Arc::default());
    let mut calls: Vec<_> = (0..3).map(|_| call(&engine, &gate, &runs, true)).collect();
    // Who comes after the lease is lost is no waiter of this owner: it asks the store.
    let all_in_time = stand_still();
    join(&mut calls).await;
    drop(all_in_time);
    let calls: Vec<_> = calls.into_iter().map(spawn).collect();
    gate.send_replace(true);
    let answers = join_all(calls).await.into_iter();
    let attempts = answers.map(|answer| match answer.expect("the caller ends by itself") {
        Err(RunError::Retry(retry)) => retry.attempt,
        other => panic!("{other:?}"),
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [1; 3], "a waiter gets the owner's answer");
    assert_eq!(runs.load(SeqCst), 1, "waiters do not claim what the owner gave back");
}

#[test]
fn waiters_of_a_failing_owner_get_its_answer_and_never_stampede() {
    explore(Pace::WhenIdle, a_failing_owner_and_its_waiters);
}

#[test]
fn waiters_do_not_stampede_however_long_anything_takes() {
    explore(Pace::AtAnyTime, a_failing_owner_and_its_waiters);
}

#[test]
fn a_waiter_stampede_is_caught() {
    let says = "a waiter gets the owner's answer";
    for pace in [Pace::WhenIdle, Pace::AtAnyTime] {
        caught(Bug::WaiterStampede, pace, says, a_failing_owner_and_its_waiters);
    }
}

#[test]
fn callers_that_come_at_any_time_run_the_work_once() {
    explore(Pace::WhenIdle, || async {
        let store = Remote::new();
        // Two engines are two processes.
        let engines = [engine(&store), engine(&store)];
        let (gate, runs) = (watch::Sender::new(true), Arc::default());
        let calls = (0..3).map(|n| spawn(call(&engines[n % 2], &gate, &runs, false)));
        for answer in join_all(calls.collect::<Vec<_>>()).await {
            let answer = answer.expect("the caller ends by itself");
            assert_eq!(answer.expect("everybody is answered"), 1);
        }
        assert_eq!(runs.load(SeqCst), 1);
    });
}

/// The gauge of waiters, as it is published. The tests of a thread share it, one after the other.
#[derive(Default)]
struct Waiting(Arc<AtomicI64>);

impl Recorder for Waiting {
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
        Gauge::from_arc(Arc::new(Whole(self.0.clone())))
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct Whole(Arc<AtomicI64>);

impl GaugeFn for Whole {
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
fn callers_that_hang_up_leave_no_waiter_behind_and_never_stop_the_work() {
    let gauge = Waiting::default();
    let waiting = gauge.0.clone();
    metrics::with_local_recorder(&gauge, || {
        explore(Pace::WhenIdle, move || {
            let waiting = waiting.clone();
            async move {
                waiting.store(0, SeqCst);
                let store = Remote::new();
                let engine = engine(&store);
                let (gate, runs) = (watch::Sender::new(false), Arc::default());
                let mut calls: Vec<_> =
                    (0..4).map(|_| call(&engine, &gate, &runs, false)).collect();
                join(&mut calls).await;
                assert_eq!(waiting.load(SeqCst), 3);
                let calls: Vec<_> = calls.into_iter().map(spawn).collect();
                let hangs_up = [calls[0].abort_handle(), calls[2].abort_handle()];
                let hangs_up = hangs_up.map(|call| spawn(async move { call.abort() }));
                gate.send_replace(true);
                for (n, answer) in join_all(calls).await.into_iter().enumerate() {
                    match answer {
                        Ok(answer) => assert_eq!(answer.expect("answered"), 1),
                        Err(_) => assert!(n == 0 || n == 2, "only those two hang up"),
                    }
                }
                for task in hangs_up {
                    task.await.expect("ends by itself");
                }
                assert_eq!(engine.shutdown(LEASE).await, 0);
                assert_eq!((waiting.load(SeqCst), runs.load(SeqCst)), (0, 1));
                let hash = engine.key_hash(&key());
                let seen = store.records.get(&hash).await.expect("memory").expect("recorded");
                assert_eq!(seen.record.state, State::Completed);
            }
        });
    });
}

#[test]
fn when_the_callers_runtime_goes_away_everybody_is_told_and_the_key_is_given_back() {
    explore(Pace::WhenIdle, || async {
        let store = Remote::new();
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
        // Whoever waited while it was given back is told to come again.
        while let Err(error) = call(&other, &gate, &runs, false).await {
            let RunError::Busy { retry_after } = error else { panic!("{error:?}") };
            sleep(retry_after).await;
        }
        assert!(since.elapsed() < LEASE / 2, "nobody waits for the lease to run out");
    });
}
