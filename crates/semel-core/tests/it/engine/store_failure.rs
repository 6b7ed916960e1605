//! A store that fails before, during or after the work.

use std::{io, time::Duration};

use semel_core::{Cached, Context, ErrorKind, RunError, State, StoreDown, WorkError};

use super::{
    faulty_store::{FaultyStore, StepFault},
    *,
};

const FOREVER: usize = usize::MAX;
/// The shortest `store_timeout`.
const SHORT: Duration = Duration::from_millis(10);

async fn run(engine: &Engine, runs: &RunCounter) -> Result<semel_core::Answer<u32>, RunError> {
    let runs = runs.clone();
    engine
        .run(key("a"), fingerprint("x"), move |_| async move { Ok::<_, io::Error>(runs.next()) })
        .await
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_recognised_when_it_is_repeated() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::ReplyLost, 2);
    let engine = engine(store.clone(), policy());
    let answer = run(&engine, &RunCounter::default()).await.unwrap();
    assert_eq!((answer.attempt, answer.stored), (1, true));
    assert_eq!(store.calls("claim"), 3);
}

#[tokio::test]
async fn a_store_that_is_down_refuses_and_nothing_runs() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().store_timeout(Duration::from_millis(60)));
    let runs = RunCounter::default();
    let error = run(&engine, &runs).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Store(e) if e.kind() == ErrorKind::Unavailable),
        "{error:?}"
    );
    assert_eq!(runs.count(), 0);
    store.heal();
    assert_eq!(run(&engine, &runs).await.unwrap().value, 1);
}

#[tokio::test]
async fn an_unacknowledged_claim_is_released() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::ReplyLost, FOREVER);
    let policy = policy().store_timeout(Duration::from_millis(30)).lease(Duration::from_secs(60));
    let engine = engine(store.clone(), policy);
    let runs = RunCounter::default();
    assert!(run(&engine, &runs).await.is_err());
    let hash = engine.key_hash(&key("a"));
    until("the key is released", async || {
        store.inner.get(&hash).await.unwrap().unwrap().record.state == State::Open
    })
    .await;
    store.heal();
    assert_eq!(run(&engine, &runs).await.unwrap().value, 1);
}

#[tokio::test]
async fn a_route_may_choose_to_run_without_protection() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::Down, FOREVER);
    let policy = policy().store_timeout(SHORT).store_down(StoreDown::RunUnprotected);
    let engine = engine(store, policy);
    let answer = run(&engine, &RunCounter::default()).await.unwrap();
    assert_eq!((answer.value, answer.stored, answer.attempt), (1, false, 0));
    let failing = |_| async { Err::<u32, _>(WorkError::retry("no luck")) };
    let error = engine.run(key("b"), fingerprint("x"), failing).await.unwrap_err();
    assert!(matches!(error, RunError::Retry(_)), "{error:?}");
}

#[tokio::test]
async fn recording_is_retried_until_the_store_is_back() {
    let store = FaultyStore::default();
    store.fail("complete", StepFault::Down, 3);
    let engine = engine(store.clone(), policy());
    let answer = run(&engine, &RunCounter::default()).await.unwrap();
    assert!(answer.stored);
    assert_eq!(store.calls("complete"), 4);
}

#[tokio::test]
async fn an_outcome_whose_reply_was_lost_is_recorded_once() {
    let store = FaultyStore::default();
    store.fail("complete", StepFault::ReplyLost, 1);
    let engine = engine(store, policy());
    let runs = RunCounter::default();
    assert!(run(&engine, &runs).await.unwrap().stored);
    assert!(run(&engine, &runs).await.unwrap().replayed);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn the_caller_gets_stored_false_while_recording_is_retried() {
    let store = FaultyStore::default();
    store.fail("complete", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().wait(Duration::from_millis(1)));
    let runs = RunCounter::default();
    let answer = run(&engine, &runs).await.unwrap();
    assert_eq!((answer.value, answer.stored), (1, false));
    // The lease is renewed while recording is retried, and the outcome is recorded in the end.
    tokio::time::sleep(LEASE * 2).await;
    let hash = engine.key_hash(&key("a"));
    let sighting = store.inner.get(&hash).await.unwrap().unwrap();
    assert!(sighting.record.is_leased(sighting.at), "{sighting:?}");
    store.heal();
    until("the outcome is recorded", async || {
        store.inner.get(&hash).await.unwrap().unwrap().record.state == State::Completed
    })
    .await;
    assert!(run(&engine, &runs).await.unwrap().replayed);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn after_the_record_budget_the_key_is_free_when_its_lease_ends() {
    let store = FaultyStore::default();
    store.fail("complete", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().record_budget(Duration::from_millis(50)));
    let runs = RunCounter::default();
    let answer = run(&engine, &runs).await.unwrap();
    assert!(!answer.stored);
    store.heal();
    // The lease is not renewed any more: the next call waits for its end, and runs the work again.
    let again = run(&engine, &runs).await.unwrap();
    assert_eq!((again.value, again.attempt), (2, 2));
}

#[tokio::test]
async fn a_completion_does_not_recreate_a_record_that_the_store_lost() {
    let store = FaultyStore::default();
    let engine = engine(store.clone(), policy());
    let hash = engine.key_hash(&key("a"));
    let forget = store.clone();
    let work = move |_| async move {
        // Loses the record while its owner runs: releases it in the owner's name, and forgets it.
        let record = forget.inner.get(&hash).await.unwrap().unwrap().record;
        let owner =
            semel_core::Owner { key: hash, nonce: record.nonce.unwrap(), token: record.token };
        let release = semel_core::ReleaseRequest { owner, effect: semel_core::Effect::None };
        forget.inner.release(&release).await.unwrap();
        forget.inner.forget(&hash).await.unwrap();
        Ok::<_, io::Error>(1u32)
    };
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!((answer.value, answer.stored), (1, false));
    assert!(store.inner.get(&hash).await.unwrap().is_none());
}

#[tokio::test]
async fn an_owner_that_cannot_renew_gets_the_signal_that_its_lease_is_lost() {
    let store = FaultyStore::default();
    store.fail("renew_many", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy());
    // The schedule tests check that this is before the end of the lease.
    let work = move |context: Context| async move {
        context.lease_lost().await;
        Ok::<_, io::Error>(context.is_lease_lost())
    };
    assert!(engine.run(key("a"), fingerprint("x"), work).await.unwrap().value);
    assert!(store.calls("renew_many") >= 2, "renewal goes on");
}

#[tokio::test]
async fn a_release_that_fails_is_retried() {
    let store = FaultyStore::default();
    store.fail("release", StepFault::Down, 2);
    let engine = engine(store.clone(), policy().lease(Duration::from_secs(60)));
    let failing = |_| async { Err::<u32, _>(WorkError::retry("again")) };
    assert!(engine.run(key("a"), fingerprint("x"), failing).await.is_err());
    assert_eq!(run(&engine, &RunCounter::default()).await.unwrap().attempt, 2);
}

#[tokio::test]
async fn a_full_store_refuses_at_once_and_says_so() {
    let store = MemoryStore::builder().max_entries(1).build().unwrap();
    let engine = engine(store, policy());
    run(&engine, &RunCounter::default()).await.unwrap();
    let second =
        engine.run(key("b"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await;
    let error = second.unwrap_err();
    assert!(matches!(&error, RunError::Store(e) if e.kind() == ErrorKind::Full), "{error:?}");
    assert!(error.to_string().contains("max_entries"), "{error}");
}

#[tokio::test]
async fn a_lost_reply_to_a_release_is_not_mistaken_for_another_owner() {
    for (fault_in, ending) in [("release", "retry"), ("abandon", "indeterminate")] {
        let store = FaultyStore::default();
        store.fail(fault_in, StepFault::ReplyLost, 1);
        let engine = engine(store.clone(), policy());
        let failing = move |_| async move {
            Err::<u32, _>(match ending {
                "retry" => WorkError::retry("again"),
                _ => WorkError::indeterminate("not known"),
            })
        };
        let error = engine.run(key("a"), fingerprint("x"), failing).await.unwrap_err();
        assert!(matches!(error, RunError::Retry(_)), "{fault_in}: {error:?}");
    }
}

#[tokio::test]
async fn a_lost_reply_under_hold_is_still_unknown() {
    let store = FaultyStore::default();
    store.fail("release", StepFault::ReplyLost, 1);
    let engine = engine(store, hold());
    let failing = |_| async { Err::<u32, _>(WorkError::retry("again")) };
    let error = engine.run(key("a"), fingerprint("x"), failing).await.unwrap_err();
    assert!(matches!(error, RunError::Unknown), "{error:?}");
}

#[tokio::test]
async fn a_key_whose_work_ran_unprotected_is_never_released_as_untouched() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::ReplyLost, FOREVER);
    let policy = hold().store_timeout(SHORT).store_down(StoreDown::RunUnprotected);
    let engine = engine(store.clone(), policy);
    run(&engine, &RunCounter::default()).await.unwrap();
    assert_eq!(engine.shutdown(Duration::from_secs(5)).await, 0);
    let sighting = store.inner.get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert_eq!(sighting.record.state, State::InProgress);
    assert!(sighting.record.fingerprint.is_some(), "another payload must not use the key");
}

#[tokio::test]
async fn a_store_that_never_replies_does_not_block_the_caller() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::Hangs, FOREVER);
    let engine = engine(store, policy().wait(SHORT).store_timeout(SHORT));
    let runs = RunCounter::default();
    let error = run(&engine, &runs).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Store(e) if e.kind() == ErrorKind::Unavailable),
        "{error:?}"
    );
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn after_a_store_error_the_work_never_runs() {
    let store = FaultyStore::default();
    store.slow(Duration::from_millis(1300));
    let policy = policy().wait(SHORT).store_timeout(SHORT).lease(Duration::from_secs(60));
    let engine = engine(store.clone(), policy);
    let runs = RunCounter::default();
    let error = run(&engine, &runs).await.unwrap_err();
    assert!(matches!(error, RunError::Store(_)), "{error:?}");
    // The claim is granted later, and released without a run.
    let hash = engine.key_hash(&key("a"));
    until("the key is released", async || {
        let sighting = store.inner.get(&hash).await.unwrap();
        sighting.is_some_and(|sighting| sighting.record.state == State::Open)
    })
    .await;
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_renewal_that_hangs_is_repeated() {
    let store = FaultyStore::default();
    store.fail("renew_many", StepFault::Hangs, 1);
    let lease = Duration::from_secs(4);
    let engine = engine(store.clone(), policy().lease(lease));
    let renewed = store.clone();
    let work = move |context: Context| async move {
        let started = std::time::Instant::now();
        // Without the second renewal, the first lease would have ended.
        while renewed.calls("renew_many") < 3 || started.elapsed() <= lease {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok::<_, io::Error>(context.is_lease_lost())
    };
    let run = engine.run(key("a"), fingerprint("x"), work);
    let answer = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap();
    assert!(!answer.value, "the lease was renewed in time");
}

#[tokio::test]
async fn a_lease_granted_after_lost_replies_has_its_full_length() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::ReplyLost, 7);
    let engine = engine(store, policy());
    let work = |context: Context| async move { Ok::<_, io::Error>(context.is_lease_lost()) };
    let started = std::time::Instant::now();
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert!(started.elapsed() > LEASE, "the replies were lost for longer than a lease");
    assert_eq!((answer.value, answer.attempt), (false, 1));
}

#[tokio::test]
async fn refused_calls_leave_no_tasks_while_the_store_is_down() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::Down, FOREVER);
    store.fail("get", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().store_timeout(SHORT));
    for i in 0..100 {
        let work = |_| async { Ok::<_, io::Error>(1u32) };
        assert!(engine.run(key(&format!("k{i}")), fingerprint("x"), work).await.is_err());
    }
    assert_eq!(
        engine.shutdown(Duration::from_secs(5)).await,
        0,
        "no work ran, and no task is left"
    );
}

#[tokio::test]
async fn after_a_failed_release_the_error_says_when_the_lease_ends() {
    let store = FaultyStore::default();
    store.fail("release", StepFault::Down, FOREVER);
    let engine = engine(store, policy().record_budget(Duration::ZERO));
    let failing = |_| async { Err::<u32, _>(WorkError::retry("again")) };
    let error = engine.run(key("a"), fingerprint("x"), failing).await.unwrap_err();
    assert!(matches!(error, RunError::Retry(retry) if retry.retry_after == LEASE));
}

#[tokio::test]
async fn a_slow_store_changes_no_result() {
    let store = FaultyStore::default();
    store.slow(Duration::from_millis(5));
    let engine = engine(store.clone(), policy());
    let runs = RunCounter::default();
    assert!(!run(&engine, &runs).await.unwrap().replayed);
    assert!(run(&engine, &runs).await.unwrap().replayed);
    let failing = |_| async { Err::<u32, _>(WorkError::retry("again")) };
    assert!(engine.run(key("b"), fingerprint("x"), failing).await.is_err());
    let again =
        engine.run(key("b"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await;
    assert_eq!(again.unwrap().attempt, 2);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_claim_does_not_cancel_it() {
    let store = FaultyStore::default();
    store.slow(Duration::from_millis(30));
    let engine = engine(store.clone(), policy());
    let runs = RunCounter::default();
    let timed_out = tokio::time::timeout(Duration::from_millis(5), run(&engine, &runs)).await;
    assert!(timed_out.is_err(), "the caller leaves during the claim");
    let hash = engine.key_hash(&key("a"));
    until("the outcome is recorded", async || {
        let sighting = store.inner.get(&hash).await.unwrap();
        sighting.is_some_and(|sighting| sighting.record.state == State::Completed)
    })
    .await;
    assert_eq!((runs.count(), store.calls("claim"), store.calls("complete")), (1, 1, 1));
}

#[tokio::test]
async fn unprotected_work_runs_whatever_the_store_timeout_is() {
    for timeout in [SHORT, Duration::from_millis(1200)] {
        let store = FaultyStore::default();
        store.fail("claim", StepFault::Down, FOREVER);
        let policy = policy().store_timeout(timeout).store_down(StoreDown::RunUnprotected);
        let answer = run(&engine(store, policy), &RunCounter::default()).await.unwrap();
        assert_eq!((answer.value, answer.stored), (1, false), "{timeout:?}");
    }
}

#[tokio::test]
async fn a_claim_that_never_returns_does_not_block_later_calls() {
    let store = FaultyStore::default();
    store.fail("claim", StepFault::Hangs, 1);
    let engine = engine(store, policy().wait(SHORT).store_timeout(SHORT));
    let runs = RunCounter::default();
    assert!(matches!(run(&engine, &runs).await, Err(RunError::Store(_))));
    assert_eq!(run(&engine, &runs).await.unwrap().value, 1);
}

#[test]
fn a_claim_under_way_when_the_runtime_shuts_down_is_released() {
    let store = FaultyStore::default();
    store.slow(Duration::from_millis(100));
    let engine = engine(store.clone(), hold().lease(Duration::from_secs(60)));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let runs = RunCounter::default();
        let _ = tokio::time::timeout(Duration::from_millis(10), run(&engine, &runs)).await;
    });
    drop(first);
    runtime().block_on(async {
        let hash = engine.key_hash(&key("a"));
        until("the key is released", async || {
            let sighting = store.inner.get(&hash).await.unwrap();
            sighting.is_some_and(|sighting| sighting.record.state == State::Open)
        })
        .await;
    });
}

#[tokio::test]
async fn cleanup_goes_on_after_a_panic_of_the_store() {
    let store = FaultyStore::default();
    store.fail("purge", StepFault::Panics, 2);
    let builder = Engine::builder().store(store.clone()).cleanup_every(Duration::from_millis(5));
    let _engine = builder.build().unwrap();
    until("cleanup is tried again", async || store.calls("purge") > 3).await;
}

#[tokio::test]
async fn the_wait_for_an_owner_does_not_apply_to_an_outage() {
    for fault in [StepFault::Down, StepFault::Hangs] {
        let store = FaultyStore::shared();
        store.fail("claim", fault, FOREVER);
        let policy = policy().wait(Duration::from_secs(600)).store_timeout(SHORT);
        let (engine, runs) = (engine(store, policy), RunCounter::default());
        let refused = tokio::time::timeout(Duration::from_secs(60), run(&engine, &runs)).await;
        let error = refused.expect("an outage is not waited for").unwrap_err();
        assert!(matches!(error, RunError::Store(_)), "{error:?}");
        assert_eq!(runs.count(), 0);
    }
}

/// The store is still called once, since a cache or a front below may have the outcome.
#[tokio::test]
async fn a_store_that_is_known_to_be_down_is_called_once_per_request_until_it_is_back() {
    let store = FaultyStore::shared();
    store.fail("claim", StepFault::Down, FOREVER);
    store.fail("get", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().store_timeout(Duration::from_millis(500)));
    let runs = RunCounter::default();
    until("the store is known to be down", async || {
        let before = store.calls("claim");
        assert!(matches!(run(&engine, &runs).await, Err(RunError::Store(_))));
        store.calls("claim") == before + 1
    })
    .await;
    until("it is probed", async || store.calls("get") > 0).await;
    store.heal();
    assert_eq!(
        run(&engine, &runs).await.unwrap().value,
        1,
        "no request has to fail before the store is used again"
    );
    // A claim is repeated after a lost reply only while the store is not known to be down.
    until("it is known to be back", async || {
        store.fail("claim", StepFault::ReplyLost, 1);
        let id = format!("k{}", store.calls("claim"));
        let work = |_| async { Ok::<_, io::Error>(1u32) };
        engine.run(key(&id), fingerprint("x"), work).await.is_ok()
    })
    .await;
}

const BOUND: Duration = Duration::from_secs(60);

/// Runs work for a new key.
async fn run_new(engine: &Engine) -> Result<u32, RunError> {
    let work = |_| async { Ok::<_, io::Error>(1u32) };
    let id = format!("{:032x}", rand::random::<u128>());
    engine.run(key(&id), fingerprint("x"), work).await.map(|answer| answer.value)
}

/// Runs new keys until the store is known to be down: then a claim is sent once.
async fn until_known_down(engine: &Engine, store: &FaultyStore) {
    let is_known = until("the store is known to be down", async || {
        let before = store.calls("claim");
        assert!(matches!(run_new(engine).await, Err(RunError::Store(_))));
        store.calls("claim") == before + 1
    });
    tokio::time::timeout(BOUND, is_known).await.expect("the circuit opens");
}

#[tokio::test]
async fn a_slow_store_that_was_down_is_used_again_after_a_late_reply() {
    let store = FaultyStore::shared();
    store.fail("claim", StepFault::Down, FOREVER);
    store.fail("get", StepFault::Down, FOREVER);
    let engine = engine(store.clone(), policy().store_timeout(Duration::from_millis(500)));
    until_known_down(&engine, &store).await;
    // Slower than a claim may be while the circuit is open, and faster than the route's timeout.
    store.slow(Duration::from_millis(1200));
    store.heal();
    let route = engine.with_policy(policy().lease(BOUND)).unwrap();
    let answered = until("a claim is waited for", async || run_new(&route).await.is_ok());
    tokio::time::timeout(BOUND, answered).await.expect("the circuit closes");
}

#[tokio::test]
async fn a_short_store_timeout_of_one_route_does_not_fail_the_others() {
    let store = FaultyStore::shared();
    store.fail("claim", StepFault::Hangs, 3);
    let long = engine(store.clone(), policy().lease(BOUND));
    let short = long.with_policy(policy().store_timeout(SHORT)).unwrap();
    for _ in 0..3 {
        assert!(matches!(run_new(&short).await, Err(RunError::Store(_))));
    }
    // Longer than a claim may take while the circuit is open.
    store.slow(Duration::from_millis(400));
    run_new(&long).await.expect("the other route waits as long as its own policy says");
}

#[tokio::test]
async fn replays_from_a_cache_do_not_hide_that_the_store_is_down() {
    let store = FaultyStore::shared();
    let cached = Arc::new(Cached::new(store.clone(), 1000));
    let engine = engine(cached, policy().store_timeout(Duration::from_millis(500)));
    let (runs, replayed) = (RunCounter::default(), engine.clone());
    for _ in 0..2 {
        run(&engine, &runs).await.unwrap();
    }
    store.fail("claim", StepFault::Down, FOREVER);
    store.fail("get", StepFault::Down, FOREVER);
    let replays = tokio::spawn(async move {
        loop {
            assert!(run(&replayed, &runs).await.unwrap().replayed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    until_known_down(&engine, &store).await;
    assert!(!replays.is_finished(), "cached outcomes are replayed during the outage");
    replays.abort();
}

/// The claim was granted, and the repeated claim that should restart its lease got no reply.
#[tokio::test]
async fn a_granted_key_is_not_released_as_untouched_after_an_unprotected_run() {
    let store = FaultyStore::default();
    store.slow(LEASE);
    let policy = hold().wait(SHORT).store_timeout(SHORT).store_down(StoreDown::RunUnprotected);
    let (engine, runs) = (engine(store.clone(), policy), RunCounter::default());
    let fault = async {
        until("the claim is granted", async || store.calls("claim") == 1).await;
        store.fail("claim", StepFault::Hangs, FOREVER);
    };
    let (answer, ()) = tokio::join!(run(&engine, &runs), fault);
    let answer = answer.unwrap();
    assert_eq!((answer.value, answer.stored), (1, false));
    assert_eq!(engine.shutdown(BOUND).await, 0);
    let sighting = store.inner.get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert_eq!(sighting.record.state, State::InProgress);
    assert!(sighting.record.fingerprint.is_some(), "another payload must not use the key");
}
