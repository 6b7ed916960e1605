//! Owners that are lost, hang, panic or come back too late.

use std::{io, time::Duration};

use semel_core::{
    Claim, ClaimRequest, Context, ErrorClass, Nonce, RunError, State, Terms, WorkError,
};
use tokio::sync::{oneshot, watch};

use super::{
    faulty_store::{FaultyStore, StepFault},
    *,
};

/// Claims the key as another process would: it takes over if the lease has ended.
async fn take_over(engine: &Engine, id: &str, lease: Duration) -> Claim {
    let request = ClaimRequest {
        key: engine.key_hash(&key(id)),
        fingerprint: recorded_fingerprint(engine, id).await,
        nonce: Nonce::random(),
        terms: Terms {
            lease: lease.into(),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: Duration::from_secs(60).into(),
            failure_retention: Duration::from_secs(60).into(),
        },
        labels: None,
    };
    engine.store().claim(&request).await.unwrap()
}

/// Lets the lease of an owner end, which is a minute long, and the grace period after the first claim too. Then claims
/// the key as another process would.
async fn outlast(engine: &Engine, clock: &ManualClock, id: &str) -> Claim {
    clock.advance(Duration::from_secs(61));
    let contested = take_over(engine, id, LEASE).await;
    assert!(matches!(contested, Claim::Busy { .. }), "{contested:?}");
    clock.advance(Duration::from_secs(20));
    take_over(engine, id, LEASE).await
}

async fn recorded_fingerprint(engine: &Engine, id: &str) -> Fingerprint {
    let sighting = engine.store().get(&engine.key_hash(&key(id))).await.unwrap().unwrap();
    sighting.record.fingerprint.unwrap()
}

#[tokio::test]
async fn a_dropped_caller_does_not_abort_the_work() {
    let engine = engine(MemoryStore::new(), policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let work = gated(&gate, &runs);
    let call = engine.run(key("a"), fingerprint("x"), work);
    let gone = tokio::time::timeout(Duration::from_millis(20), call).await;
    assert!(gone.is_err(), "the caller goes away");
    gate.send_replace(true);
    let again =
        engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    let again = again.unwrap();
    assert_eq!((again.value, again.replayed, runs.count()), (1, true, 1));
}

#[tokio::test]
async fn a_panic_under_rerun_frees_the_key_after_the_backoff() {
    let engine = engine(MemoryStore::new(), policy());
    let panicking = |_: Context| async { panic!("canary") };
    let error = engine.run::<u32, io::Error, _, _>(key("a"), fingerprint("x"), panicking).await;
    let error = error.unwrap_err();
    let RunError::Retry(retry) = &error else { panic!("{error:?}") };
    assert_eq!(retry.class, ErrorClass::Panic);
    assert!(!format!("{error} {error:?} {:?}", retry.error()).contains("canary"));
    let answer =
        engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    let answer = answer.unwrap();
    assert_eq!((answer.value, answer.attempt), (2, 2));
}

#[tokio::test]
async fn a_panic_under_hold_is_unknown_and_never_runs_again() {
    let engine = engine(MemoryStore::new(), hold());
    let panicking = |_: Context| async { panic!("on purpose") };
    let first = engine.run::<u32, io::Error, _, _>(key("a"), fingerprint("x"), panicking).await;
    assert!(matches!(first, Err(RunError::Unknown)), "{first:?}");
    let again =
        engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    assert!(matches!(again, Err(RunError::Unknown)), "{again:?}");
}

#[tokio::test]
async fn a_panic_while_the_works_future_is_made_is_a_panic_of_the_work() {
    let engine = engine(MemoryStore::new(), policy());
    let panicking = |_: Context| -> std::future::Ready<Result<u32, io::Error>> { panic!("early") };
    let error = engine.run(key("a"), fingerprint("x"), panicking).await.unwrap_err();
    assert!(matches!(error, RunError::Retry(retry) if retry.class == ErrorClass::Panic));
}

#[tokio::test]
async fn a_blocked_thread_keeps_its_lease() {
    let lease = Duration::from_secs(1);
    let engine = engine(MemoryStore::new(), policy().lease(lease));
    let contender = engine.clone();
    let (started, starts) = std::sync::mpsc::channel();
    // The work blocks the only thread of this runtime for two leases; another thread tries to take over.
    let outside = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        starts.recv().unwrap();
        runtime.block_on(async {
            tokio::time::sleep(lease * 3 / 2).await;
            take_over(&contender, "a", lease).await
        })
    });
    let work = move |context: Context| async move {
        started.send(()).unwrap();
        std::thread::sleep(lease * 2);
        Ok::<_, io::Error>(context.is_lease_lost())
    };
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!((answer.value, answer.stored), (false, true));
    let claim = outside.join().unwrap();
    assert!(matches!(claim, Claim::Busy { .. }), "{claim:?}");
}

#[tokio::test]
async fn a_run_past_max_run_loses_its_lease_and_gets_the_signal() {
    let engine = engine(MemoryStore::new(), policy().max_run(LEASE));
    let work = |context: Context| async move {
        context.lease_lost().await;
        Ok::<_, io::Error>(context.is_lease_lost())
    };
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    // No other owner took over, so the late outcome is still accepted.
    assert_eq!((answer.value, answer.stored), (true, true));
}

#[tokio::test]
async fn a_superseded_owner_returns_the_winners_outcome() {
    let store = MemoryStore::new();
    let slow = engine(store.clone(), policy().max_run(LEASE));
    let other = engine(store, policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let work = gated(&gate, &runs);
    let loser = tokio::spawn(async move { slow.run(key("a"), fingerprint("x"), work).await });
    until("the loser runs", async || runs.count() == 1).await;
    // The winner waits for the lease to end, and takes over.
    let winner =
        other.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    let winner = winner.unwrap();
    assert_eq!((winner.value, winner.replayed, winner.attempt), (2, false, 2));
    gate.send_replace(true);
    let loser = loser.await.unwrap().unwrap();
    assert_eq!((loser.value, loser.replayed, loser.attempt), (2, true, 2));
}

#[tokio::test]
async fn a_superseded_owner_waits_for_a_winner_that_still_runs() {
    let slow = engine(MemoryStore::new(), policy().max_run(LEASE));
    let (start, started) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let work = move |_| async move {
        start.send(()).unwrap();
        finished.await.unwrap();
        Ok::<_, io::Error>(1u32)
    };
    let loser = tokio::spawn({
        let slow = slow.clone();
        async move { slow.run(key("a"), fingerprint("x"), work).await }
    });
    started.await.unwrap();
    let mut winner = None;
    while winner.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let Claim::Granted(lease) = take_over(&slow, "a", Duration::from_secs(60)).await {
            winner = Some(lease);
        }
    }
    finish.send(()).unwrap();
    let owner = winner.unwrap().owner;
    let outcome = Arc::new(semel_core::Outcome::json(&2u32).unwrap());
    tokio::time::sleep(Duration::from_millis(30)).await;
    let complete = semel_core::CompleteRequest { owner, outcome };
    slow.store().complete(&complete).await.unwrap();
    let answer = loser.await.unwrap().unwrap();
    assert_eq!((answer.value, answer.replayed), (2, true));
}

#[tokio::test]
async fn a_superseded_owner_whose_work_failed_returns_the_winners_outcome() {
    let store = MemoryStore::new();
    let slow = engine(store.clone(), policy().max_run(LEASE));
    let other = engine(store, policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let work = {
        let (mut gate, runs) = (gate.subscribe(), runs.clone());
        move |_| async move {
            runs.next();
            gate.wait_for(|open| *open).await.unwrap();
            Err::<u32, _>(WorkError::retry("too late anyway"))
        }
    };
    let loser = tokio::spawn(async move { slow.run(key("a"), fingerprint("x"), work).await });
    until("the loser runs", async || runs.count() == 1).await;
    other.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await.unwrap();
    gate.send_replace(true);
    assert_eq!(loser.await.unwrap().unwrap().value, 2);
}

#[test]
fn a_runtime_that_shuts_down_during_the_work_frees_the_key() {
    let store = MemoryStore::new();
    let engine = engine(store, policy().lease(Duration::from_secs(60)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (start, started) = oneshot::channel();
        let work = move |_| async move {
            start.send(()).unwrap();
            std::future::pending::<Result<u32, io::Error>>().await
        };
        let engine = engine.clone();
        tokio::spawn(async move { engine.run(key("a"), fingerprint("x"), work).await });
        started.await.unwrap();
    });
    drop(runtime);
    // The key is abandoned, not released: the next run is the second attempt.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let hash = engine.key_hash(&key("a"));
        until("the key is abandoned", async || {
            let sighting = engine.store().get(&hash).await.unwrap().unwrap();
            sighting.record.abandoned && !sighting.record.is_leased(sighting.at)
        })
        .await;
        let answer =
            engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await;
        assert_eq!(answer.unwrap().attempt, 2);
    });
}

#[tokio::test]
async fn followers_of_a_call_whose_runtime_shuts_down_are_not_left_waiting() {
    let engine = engine(MemoryStore::new(), policy());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let (start, started) = oneshot::channel();
    runtime.spawn({
        let engine = engine.clone();
        async move {
            let work = move |_| async move {
                start.send(()).unwrap();
                std::future::pending::<Result<u32, io::Error>>().await
            };
            engine.run(key("a"), fingerprint("x"), work).await
        }
    });
    started.await.unwrap();
    let follower = tokio::spawn({
        let engine = engine.clone();
        async move {
            engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await
        }
    });
    tokio::task::yield_now().await;
    runtime.shutdown_background();
    let error = follower.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Interrupted), "{error:?}");
}

#[tokio::test]
async fn a_lost_owner_under_hold_is_unknown_and_its_late_outcome_still_counts() {
    let (engine, clock) = with_manual_clock(hold().lease(Duration::from_secs(60)));
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let work = gated(&gate, &runs);
    let owner = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    until("the owner runs", async || runs.count() == 1).await;
    assert!(matches!(outlast(&engine, &clock, "a").await, Claim::Unknown));
    gate.send_replace(true);
    assert!(owner.await.unwrap().unwrap().stored);
    let sighting = engine.store().get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert_eq!(sighting.record.state, State::Completed);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn recording_continues_when_the_callers_runtime_has_shut_down() {
    let store = super::faulty_store::FaultyStore::default();
    store.fail("complete", super::faulty_store::StepFault::Down, 3);
    let engine = engine(store.clone(), policy());
    let first = runtime();
    first.block_on(async {
        let call = engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) });
        let _ = tokio::time::timeout(Duration::from_millis(5), call).await;
    });
    drop(first);
    runtime().block_on(async {
        let hash = engine.key_hash(&key("a"));
        until("the outcome is recorded", async || {
            let sighting = store.inner.get(&hash).await.unwrap().unwrap();
            sighting.record.state == State::Completed
        })
        .await;
    });
}

#[test]
fn a_grant_whose_runtime_shut_down_before_the_work_started_is_released() {
    let store = super::faulty_store::FaultyStore::default();
    // The claim is not ready at its first poll, so the work would start in a task.
    store.slow(Duration::from_millis(20));
    let engine = engine(store.clone(), hold().lease(Duration::from_secs(60)));
    let (first, runs) = (runtime(), RunCounter::default());
    let counted = runs.clone();
    first.block_on(async {
        let work = move |_| async move { Ok::<_, io::Error>(counted.next()) };
        let call = engine.run(key("a"), fingerprint("x"), work);
        assert!(
            futures_util::FutureExt::now_or_never(call).is_none(),
            "the claim is sent, the work has not started"
        );
    });
    drop(first);
    runtime().block_on(async {
        let hash = engine.key_hash(&key("a"));
        // The claim continues on the background runtime.
        until("the key is released", async || {
            let sighting = engine.store().get(&hash).await.unwrap();
            sighting.is_some_and(|sighting| sighting.record.state == State::Open)
        })
        .await;
        let again =
            engine.run(key("a"), fingerprint("y"), |_| async { Ok::<_, io::Error>(2u32) }).await;
        assert_eq!(again.unwrap().value, 2, "no work ran, so the key has no fingerprint");
        assert_eq!(runs.count(), 0);
    });
}

#[tokio::test]
async fn a_superseded_owner_is_busy_when_the_winner_released() {
    let (slow, clock) = with_manual_clock(policy().lease(Duration::from_secs(60)));
    let (start, started) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let work = move |_| async move {
        start.send(()).unwrap();
        finished.await.unwrap();
        Ok::<_, io::Error>(1u32)
    };
    let loser = tokio::spawn({
        let slow = slow.clone();
        async move { slow.run(key("a"), fingerprint("x"), work).await }
    });
    started.await.unwrap();
    let Claim::Granted(winner) = outlast(&slow, &clock, "a").await else {
        panic!("not taken over")
    };
    let effect = semel_core::Effect::Possible;
    let release = semel_core::ReleaseRequest { owner: winner.owner, effect };
    slow.store().release(&release).await.unwrap();
    finish.send(()).unwrap();
    let error = loser.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Busy { .. }), "{error:?}");
}

#[tokio::test]
async fn attempts_of_owners_that_were_lost_count_too() {
    let store = MemoryStore::new();
    let slow = engine(store.clone(), policy().max_run(LEASE).max_attempts(1));
    let other = engine(store, policy().max_attempts(9));
    let (start, started) = oneshot::channel();
    let work = move |_| async move {
        start.send(()).unwrap();
        std::future::pending::<Result<u32, io::Error>>().await
    };
    let lost = tokio::spawn(async move { slow.run(key("a"), fingerprint("x"), work).await });
    started.await.unwrap();
    let next = other.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    assert!(matches!(next, Err(RunError::Dead)), "{next:?}");
    lost.abort();
}

#[tokio::test]
async fn a_waiter_that_takes_over_waits_for_its_own_work_as_long_as_it_runs() {
    let store = MemoryStore::new();
    let slow = engine(store.clone(), policy().max_run(LEASE));
    let wait = LEASE * 6;
    let other = engine(store, policy().wait(wait));
    let (start, started) = oneshot::channel();
    let work = move |_| async move {
        start.send(()).unwrap();
        std::future::pending::<Result<u32, io::Error>>().await
    };
    let lost = tokio::spawn(async move { slow.run(key("a"), fingerprint("x"), work).await });
    started.await.unwrap();
    let long = move |_| async move {
        tokio::time::sleep(wait).await;
        Ok::<_, io::Error>(2u32)
    };
    assert_eq!(other.run(key("a"), fingerprint("x"), long).await.unwrap().value, 2);
    lost.abort();
}

#[tokio::test]
async fn after_a_shutdown_no_work_starts_not_even_a_takeover() {
    let (engine, clock) = with_manual_clock(policy().lease(Duration::from_secs(60)));
    let hash = engine.key_hash(&key("a"));
    // Another process owns the key.
    let first =
        engine.run(key("a"), fingerprint("x"), |_| async { Err::<u32, _>(WorkError::retry("")) });
    let _ = first.await;
    assert!(matches!(take_over(&engine, "a", Duration::from_secs(60)).await, Claim::Granted(_)));
    let runs = RunCounter::default();
    let waiter =
        tokio::spawn({
            let (engine, runs) = (engine.clone(), runs.clone());
            async move {
                engine
                    .run(key("a"), fingerprint("x"), move |_| async move {
                        Ok::<_, io::Error>(runs.next())
                    })
                    .await
            }
        });
    tokio::task::yield_now().await;
    let _ = engine.shutdown(Duration::ZERO).await;
    clock.advance(Duration::from_secs(61));
    assert!(matches!(waiter.await.unwrap(), Err(RunError::Store(_))));
    assert_eq!(runs.count(), 0);
    assert!(engine.store().get(&hash).await.unwrap().is_some());
}

#[tokio::test]
async fn a_superseded_owner_does_not_get_the_outcome_of_another_fingerprint() {
    use semel_core::{Decision, Effect, ResolveRequest};
    let (engine, clock) = with_manual_clock(policy().lease(Duration::from_secs(60)));
    let (start, started) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let work = move |_| async move {
        start.send(()).unwrap();
        finished.await.unwrap();
        Ok::<_, io::Error>("x".to_owned())
    };
    let loser = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    started.await.unwrap();
    clock.advance(Duration::from_secs(61));
    let hash = engine.key_hash(&key("a"));
    let record = engine.store().get(&hash).await.unwrap().unwrap().record;
    let (seen_nonce, seen_token) = (record.nonce, record.token);
    let decision = Decision::Reopen(Effect::None);
    let request = ResolveRequest { key: hash, seen_nonce, seen_token, decision };
    engine.resolve(&request, "nothing happened").await.unwrap();
    let other = |_| async { Ok::<_, io::Error>("y".to_owned()) };
    engine.run(key("a"), fingerprint("y"), other).await.unwrap();
    finish.send(()).unwrap();
    let answer = loser.await.unwrap();
    assert!(matches!(answer, Err(RunError::Mismatch)), "{answer:?}");
}

/// Two processes share a store that stalls for longer than the lease. When it answers again, it processes the claim of
/// the process that waits before the owner's completion.
async fn owner_that_is_heard_late(policy: Policy) {
    let clock = ManualClock::new();
    let records = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let stalled = FaultyStore::over(records.clone());
    let policy = policy.lease(Duration::from_secs(60));
    let (owner, other) = (engine(stalled.clone(), policy), engine(records.clone(), policy));
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let call = |engine: &Engine| {
        let (engine, work) = (engine.clone(), gated(&gate, &runs));
        tokio::spawn(async move { engine.run(key("a"), fingerprint("x"), work).await.unwrap() })
    };
    let owning = call(&owner);
    until("the owner runs", async || runs.count() == 1).await;
    let waiting = call(&other);
    stalled.fail("complete", StepFault::Down, usize::MAX);
    gate.send_replace(true);
    until("the outcome is not recorded", async || stalled.calls("complete") > 0).await;
    clock.advance(Duration::from_secs(61));
    let hash = owner.key_hash(&key("a"));
    until("the other process has claimed the key", async || {
        let record = records.get(&hash).await.unwrap().unwrap().record;
        assert_eq!((record.state, record.token), (State::InProgress, 1), "a living owner's key");
        record.contested
    })
    .await;
    stalled.heal();
    let (first, second) = (owning.await.unwrap(), waiting.await.unwrap());
    assert_eq!((first.value, first.stored), (1, true));
    assert_eq!((second.value, second.replayed, runs.count()), (1, true, 1));
}

#[tokio::test]
async fn a_claim_that_overtakes_a_living_owner_does_not_run_the_work_again() {
    owner_that_is_heard_late(policy()).await;
}

#[tokio::test]
async fn a_claim_that_overtakes_a_living_owner_does_not_hold_its_key() {
    owner_that_is_heard_late(hold()).await;
}
