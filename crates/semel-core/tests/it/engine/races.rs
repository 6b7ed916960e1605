//! Many callers of one key at once, in one process and in several.

use std::{io, time::Duration};

use futures_util::future::join_all;
use semel_core::{RunError, WorkError};
use tokio::sync::watch;

use super::*;

/// Two engines on one store stand for two processes.
fn processes(policy: Policy) -> (Engine, Engine) {
    let store = MemoryStore::new();
    (engine(store.clone(), policy), engine(store, policy))
}

/// On a runtime with one thread, every task that was spawned before has been polled after this.
async fn poll_spawned_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_of_1000_tasks_runs_once_and_all_get_the_same_value() {
    let engine = engine(MemoryStore::new(), policy());
    let runs = RunCounter::default();
    let calls = (0..1000).map(|_| {
        let (engine, runs) = (engine.clone(), runs.clone());
        tokio::spawn(async move {
            let work = move |_| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, io::Error>(runs.next())
            };
            engine.run::<u32, _, _, _>(key("a"), fingerprint("x"), work).await.unwrap()
        })
    });
    let answers: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(runs.count(), 1);
    assert!(answers.iter().all(|answer| answer.value == 1));
    assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
}

#[tokio::test]
async fn followers_of_a_failing_leader_do_not_stampede() {
    let engine = engine(MemoryStore::new(), policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (engine, runs, mut gate) = (engine.clone(), runs.clone(), gate.subscribe());
            tokio::spawn(async move {
                let work = move |_| async move {
                    runs.next();
                    gate.wait_for(|open| *open).await.unwrap();
                    Err::<u32, _>(WorkError::retry("the bank is closed"))
                };
                engine.run(key("a"), fingerprint("x"), work).await.unwrap_err()
            })
        })
        .collect();
    poll_spawned_tasks().await;
    gate.send_replace(true);
    for error in join_all(calls).await {
        assert!(matches!(error.unwrap(), RunError::Retry(retry) if retry.attempt == 1));
    }
    assert_eq!(runs.count(), 1);
    let next = engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(9u32) }).await;
    assert_eq!(next.unwrap().attempt, 2);
}

#[tokio::test]
async fn followers_over_the_limit_get_busy() {
    let store = MemoryStore::new();
    let engine =
        Engine::builder().store(store).policy(policy()).waiters_per_key(2).build().unwrap();
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let mut calls: Vec<_> = (0..4)
        .map(|_| {
            let (engine, work) = (engine.clone(), gated(&gate, &runs));
            tokio::spawn(async move { engine.run(key("a"), fingerprint("x"), work).await })
        })
        .collect();
    // The leader and two followers stay; the fourth caller is refused at once.
    let fourth = calls.pop().unwrap().await.unwrap();
    assert!(matches!(fourth, Err(RunError::Busy { .. })), "{fourth:?}");
    gate.send_replace(true);
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().unwrap().value, 1);
    }
}

#[tokio::test]
async fn more_than_a_thousand_callers_may_wait_for_one_key_up_to_the_total_limit() {
    let store = MemoryStore::new();
    let policy = policy().lease(Duration::from_secs(30));
    let engine = Engine::builder().store(store).policy(policy).waiters(1500).build().unwrap();
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let calls: Vec<_> = (0..1600)
        .map(|_| {
            let (engine, work) = (engine.clone(), gated(&gate, &runs));
            tokio::spawn(async move { engine.run(key("a"), fingerprint("x"), work).await })
        })
        .collect();
    poll_spawned_tasks().await;
    gate.send_replace(true);
    let answers = join_all(calls).await.into_iter().map(Result::unwrap);
    let (answered, busy): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
    assert_eq!((answered.len(), busy.len(), runs.count()), (1501, 99, 1));
    assert!(busy.iter().all(|answer| matches!(answer, Err(RunError::Busy { .. }))));
}

#[tokio::test]
async fn another_process_waits_and_replays() {
    let (one, other) = processes(policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let owner = tokio::spawn({
        let work = gated(&gate, &runs);
        async move { one.run(key("a"), fingerprint("x"), work).await }
    });
    until("the owner runs", async || runs.count() == 1).await;
    let waiter = tokio::spawn({
        let work = gated(&gate, &runs);
        async move { other.run(key("a"), fingerprint("x"), work).await }
    });
    gate.send_replace(true);
    assert!(!owner.await.unwrap().unwrap().replayed);
    let replay = waiter.await.unwrap().unwrap();
    assert_eq!((replay.value, replay.replayed), (1, true));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_waiter_whose_wait_is_over_gets_busy_and_when_to_retry() {
    let (one, other) = processes(policy());
    let other = other.with_policy(policy().wait(Duration::from_millis(50))).unwrap();
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let owner = tokio::spawn({
        let work = gated(&gate, &runs);
        async move { one.run(key("a"), fingerprint("x"), work).await }
    });
    until("the owner runs", async || runs.count() == 1).await;
    let error = other.run(key("a"), fingerprint("x"), gated(&gate, &runs)).await.unwrap_err();
    let RunError::Busy { retry_after } = error else { panic!("{error:?}") };
    assert!(retry_after > Duration::ZERO && retry_after <= LEASE, "{retry_after:?}");
    gate.send_replace(true);
    owner.await.unwrap().unwrap();
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn waiters_of_another_process_do_not_claim_when_the_owner_releases() {
    let (one, other) = processes(policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let owner = tokio::spawn({
        let mut gate = gate.subscribe();
        let runs = runs.clone();
        let work = move |_| async move {
            runs.next();
            gate.wait_for(|open| *open).await.unwrap();
            Err::<u32, _>(WorkError::retry("the bank is closed"))
        };
        async move { one.run(key("a"), fingerprint("x"), work).await }
    });
    until("the owner runs", async || runs.count() == 1).await;
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let (other, work) = (other.clone(), gated(&gate, &runs));
            tokio::spawn(async move { other.run(key("a"), fingerprint("x"), work).await })
        })
        .collect();
    poll_spawned_tasks().await;
    gate.send_replace(true);
    assert!(matches!(owner.await.unwrap(), Err(RunError::Retry(_))));
    for waiter in join_all(waiters).await {
        let error = waiter.unwrap().unwrap_err();
        assert!(matches!(error, RunError::Busy { .. }), "{error:?}");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn shutdown_refuses_new_work_and_waits_for_the_rest() {
    let engine = engine(MemoryStore::new(), policy());
    let (gate, runs) = (watch::Sender::new(false), RunCounter::default());
    let owner = tokio::spawn({
        let (engine, work) = (engine.clone(), gated(&gate, &runs));
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    until("the owner runs", async || runs.count() == 1).await;
    assert_eq!(engine.shutdown(Duration::from_millis(10)).await, 1);
    let refused = engine.run(key("b"), fingerprint("x"), gated(&gate, &runs)).await.unwrap_err();
    assert!(refused.to_string().contains("shutting down"), "{refused}");
    gate.send_replace(true);
    assert_eq!(engine.shutdown(Duration::from_secs(20)).await, 0);
    owner.await.unwrap().unwrap();
}

/// Claims a key as another process would.
async fn claimed_elsewhere(engine: &Engine, id: &str, hold: OnLostOwner) -> semel_core::Owner {
    let request = semel_core::ClaimRequest {
        key: engine.key_hash(&key(id)),
        fingerprint: fingerprint("x").sealed(None),
        nonce: semel_core::Nonce::random(),
        terms: semel_core::Terms {
            lease: Duration::from_secs(60).into(),
            on_lost_owner: hold,
            max_attempts: None,
            retention: Duration::from_secs(60).into(),
            failure_retention: Duration::from_secs(60).into(),
        },
        labels: None,
    };
    match engine.store().claim(&request).await.unwrap() {
        semel_core::Claim::Granted(lease) => lease.owner,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_waiter_gets_the_state_in_which_another_process_left_the_key() {
    use semel_core::{AbandonRequest, Effect, ReleaseRequest};
    for state in ["erased", "unknown", "forgotten", "reused"] {
        let engine = engine(MemoryStore::new(), policy());
        let owner = claimed_elsewhere(&engine, "a", OnLostOwner::Hold).await;
        let waiter = tokio::spawn({
            let engine = engine.clone();
            async move {
                engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await
            }
        });
        poll_spawned_tasks().await;
        let store = engine.store();
        match state {
            "erased" => drop(store.erase(&owner.key).await.unwrap()),
            "unknown" => {
                let backoff = Duration::ZERO;
                store.abandon(&AbandonRequest { owner, backoff }).await.unwrap();
            }
            _ => {
                store.release(&ReleaseRequest { owner, effect: Effect::None }).await.unwrap();
                store.forget(&owner.key).await.unwrap();
            }
        }
        if state == "reused" {
            let other = engine.with_policy(policy()).unwrap();
            let work = |_| async { Ok::<_, io::Error>(2u32) };
            other.run(key("a"), fingerprint("something else"), work).await.unwrap();
        }
        let answer = waiter.await.unwrap().unwrap_err();
        let as_expected = match state {
            "erased" => matches!(answer, RunError::Gone),
            "unknown" => matches!(answer, RunError::Unknown),
            "forgotten" => matches!(answer, RunError::Busy { .. }),
            _ => matches!(answer, RunError::Mismatch),
        };
        assert!(as_expected, "{state}: {answer:?}");
    }
}
