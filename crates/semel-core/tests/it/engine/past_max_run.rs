//! Work that runs past `max_run`: its key may be taken over in its own process too.

use std::io;

use semel_core::{Context, RunError};
use tokio::sync::watch;

use super::{
    faulty_store::{FaultyStore, StepFault},
    *,
};

fn short_run() -> Policy {
    policy().max_run(LEASE).wait(Duration::ZERO)
}

/// Repeats the request while the key is busy.
async fn run_until_answered(engine: &Engine) -> Result<u32, RunError> {
    let mut last = Err(RunError::Interrupted);
    for _ in 0..500 {
        let work = |_: Context| async { Ok::<_, io::Error>(7u32) };
        last = engine.run(key("a"), fingerprint("x"), work).await.map(|answer| answer.value);
        if !matches!(last, Err(RunError::Busy { .. })) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    last
}

/// Starts work that waits for the gate, in another task.
async fn start_hanging_work(
    engine: &Engine,
    gate: &watch::Sender<bool>,
) -> tokio::task::JoinHandle<Result<semel_core::Answer<u32>, RunError>> {
    let runs = RunCounter::default();
    let (engine, work) = (engine.clone(), gated(gate, &runs));
    let owner = tokio::spawn(async move { engine.run(key("a"), fingerprint("x"), work).await });
    until("the work runs", async || runs.count() == 1).await;
    owner
}

#[tokio::test]
async fn work_that_hangs_past_max_run_is_taken_over_in_its_own_process() {
    let engine = engine(MemoryStore::new(), short_run());
    let gate = watch::Sender::new(false);
    let owner = start_hanging_work(&engine, &gate).await;
    assert_eq!(run_until_answered(&engine).await.unwrap(), 7);
    gate.send_replace(true);
    let late = owner.await.unwrap().unwrap();
    assert_eq!((late.value, late.replayed, late.attempt), (7, true, 2), "one outcome is recorded");
    assert_eq!(engine.shutdown(Duration::from_secs(10)).await, 0);
}

#[tokio::test]
async fn work_that_hangs_past_max_run_under_hold_is_unknown_in_its_own_process() {
    let engine = engine(MemoryStore::new(), short_run().on_lost_owner(OnLostOwner::Hold));
    let gate = watch::Sender::new(false);
    let owner = start_hanging_work(&engine, &gate).await;
    let retry = run_until_answered(&engine).await;
    assert!(matches!(retry, Err(RunError::Unknown)), "{retry:?}");
    gate.send_replace(true);
    assert!(owner.await.unwrap().unwrap().stored, "its own late outcome still counts");
    assert_eq!(run_until_answered(&engine).await.unwrap(), 1);
}

#[tokio::test]
async fn a_late_owner_without_a_takeover_records_and_its_followers_get_its_result() {
    let engine = engine(MemoryStore::new(), policy().max_run(LEASE));
    let (started, starts) = tokio::sync::oneshot::channel();
    let work = move |context: Context| async move {
        started.send(()).unwrap();
        context.lease_lost().await;
        Ok::<_, io::Error>(1u32)
    };
    let owner = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    starts.await.unwrap();
    let mut follower =
        Box::pin(engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }));
    assert!(futures_util::poll!(&mut follower).is_pending());
    let (owner, follower) = (owner.await.unwrap().unwrap(), follower.await.unwrap());
    assert_eq!((owner.value, owner.replayed, owner.stored), (1, false, true));
    assert_eq!((follower.value, follower.replayed), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_blocks_its_thread_past_max_run_is_taken_over_too() {
    let engine = engine(MemoryStore::new(), short_run());
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let (started, starts) = tokio::sync::oneshot::channel();
    let owner = tokio::spawn({
        let engine = engine.clone();
        let work = move |_: Context| async move {
            started.send(()).unwrap();
            blocked.recv().ok();
            Ok::<_, io::Error>(1u32)
        };
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    starts.await.unwrap();
    assert_eq!(run_until_answered(&engine).await.unwrap(), 7);
    unblock.send(()).unwrap();
    assert_eq!(owner.await.unwrap().unwrap().value, 7);
}

/// Where work runs without a store, only the in-flight call keeps a retry from running beside the first run.
#[tokio::test]
async fn a_call_stays_in_flight_while_the_store_is_silent_if_work_may_run_unprotected() {
    let store = FaultyStore::default();
    let unprotected = policy().store_down(semel_core::StoreDown::RunUnprotected);
    let engine = engine(store.clone(), unprotected.wait(Duration::ZERO));
    let gate = watch::Sender::new(false);
    let owner = start_hanging_work(&engine, &gate).await;
    for step in ["claim", "renew_many"] {
        store.fail(step, StepFault::Down, usize::MAX);
    }
    tokio::time::sleep(LEASE * 2).await;
    let work = |_: Context| async { Ok::<_, io::Error>(7u32) };
    let retry = engine.run(key("a"), fingerprint("x"), work).await;
    assert!(matches!(retry, Err(RunError::Busy { .. })), "{retry:?}");
    gate.send_replace(true);
    assert_eq!(owner.await.unwrap().unwrap().value, 1);
}
