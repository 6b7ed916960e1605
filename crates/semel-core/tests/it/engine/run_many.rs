//! `run_many`.

use std::{io, time::Duration};

use semel_core::{Context, RunError, WorkError};

use super::{
    faulty_store::{FaultyStore, StepFault},
    *,
};

fn items(ids: &[&'static str]) -> Vec<(Key, Fingerprint, &'static str)> {
    ids.iter().map(|id| (key(id), fingerprint("x"), *id)).collect()
}

#[tokio::test]
async fn a_batch_claims_once_and_answers_in_order() {
    let store = FaultyStore::default();
    let engine = engine(store.clone(), policy());
    let work = |id: &'static str, _: Context| async move { Ok::<_, io::Error>(id.to_owned()) };
    let answers = engine.run_many(items(&["a", "b", "c"]), work).await;
    let values: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().value).collect();
    assert_eq!(values, ["a", "b", "c"]);
    assert_eq!((store.calls("claim_many"), store.calls("claim")), (1, 0));
    assert!(engine.run_many(vec![], work).await.is_empty());
}

#[tokio::test]
async fn equal_items_of_a_batch_run_once() {
    let engine = engine(MemoryStore::new(), policy());
    let runs = RunCounter::default();
    let work = {
        let runs = runs.clone();
        move |_, _: Context| {
            let runs = runs.clone();
            async move { Ok::<_, io::Error>(runs.next()) }
        }
    };
    let mut batch = items(&["a", "a"]);
    batch.push((key("a"), fingerprint("something else"), "a"));
    let answers = engine.run_many(batch, work).await;
    assert_eq!(runs.count(), 1);
    let (first, duplicate) = (answers[0].as_ref().unwrap(), answers[1].as_ref().unwrap());
    assert_eq!((first.value, duplicate.value), (1, 1));
    assert_eq!((first.replayed, duplicate.replayed), (false, true));
    assert!(matches!(answers[2], Err(RunError::Mismatch)), "{:?}", answers[2]);
}

#[tokio::test]
async fn a_fast_items_outcome_is_recorded_before_a_slow_item_ends() {
    let engine = engine(MemoryStore::new(), policy());
    let gate = tokio::sync::watch::Sender::new(false);
    let work = {
        let gate = gate.clone();
        move |id: &'static str, _: Context| {
            let mut gate = gate.subscribe();
            async move {
                if id == "slow" {
                    gate.wait_for(|open| *open).await.unwrap();
                }
                Ok::<_, io::Error>(id.to_owned())
            }
        }
    };
    let batch = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run_many(items(&["slow", "fast"]), work).await }
    });
    let fast = engine.key_hash(&key("fast"));
    until("the fast one is recorded", async || {
        let sighting = engine.store().get(&fast).await.unwrap();
        sighting.is_some_and(|sighting| sighting.record.outcome.is_some())
    })
    .await;
    assert!(!batch.is_finished());
    gate.send_replace(true);
    assert!(batch.await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test]
async fn each_item_of_a_batch_fails_on_its_own() {
    let engine = engine(MemoryStore::new(), policy());
    let work = |id: &'static str, _: Context| async move {
        match id {
            "panic" => panic!("on purpose"),
            "retry" => Err(WorkError::retry("again")),
            "final" => Err(WorkError::failure("no", "never")),
            _ => Ok(id.to_owned()),
        }
    };
    let answers = engine.run_many(items(&["ok", "panic", "retry", "final"]), work).await;
    assert!(answers[0].is_ok());
    assert!(matches!(answers[1], Err(RunError::Retry(_))));
    assert!(matches!(answers[2], Err(RunError::Retry(_))));
    assert!(matches!(answers[3], Err(RunError::Failed(_))));
}

#[tokio::test]
async fn a_batch_whose_replies_were_lost_is_recognised_when_it_is_repeated() {
    let store = FaultyStore::default();
    store.fail("claim_many", StepFault::ReplyLost, 1);
    let engine = engine(store, policy());
    let work = |_, context: Context| async move { Ok::<_, io::Error>(context.attempt()) };
    for answer in engine.run_many(items(&["a", "b"]), work).await {
        assert_eq!(answer.unwrap().value, 1);
    }
}

#[tokio::test]
async fn a_batch_on_a_store_that_is_down_runs_nothing() {
    let store = FaultyStore::default();
    store.fail("claim_many", StepFault::Down, usize::MAX);
    store.fail("claim", StepFault::Down, usize::MAX);
    let engine = engine(store, policy().store_timeout(Duration::from_millis(20)));
    let runs = RunCounter::default();
    let work = {
        let runs = runs.clone();
        move |_, _: Context| {
            let runs = runs.clone();
            async move { Ok::<_, io::Error>(runs.next()) }
        }
    };
    let answers = engine.run_many(items(&["a", "b"]), work).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(RunError::Store(_)))), "{answers:?}");
    assert_eq!(runs.count(), 0);
    engine.shutdown(Duration::from_millis(1)).await;
    let work = |_, _: Context| async { Ok::<_, io::Error>(1u32) };
    assert!(engine.run_many(items(&["a"]), work).await[0].is_err());
}

#[tokio::test]
async fn an_item_whose_claim_gets_no_reply_does_not_delay_the_others() {
    let store = FaultyStore::default();
    let engine = engine(store.clone(), policy());
    store.cut_off(engine.key_hash(&key("bad")));
    let (done, finished) = tokio::sync::watch::channel(false);
    let work = move |_: &'static str, _: Context| {
        let done = done.clone();
        async move { Ok::<_, io::Error>(done.send_replace(true)) }
    };
    let batch = tokio::spawn({
        let engine = engine.with_policy(policy().wait(Duration::from_secs(600))).unwrap();
        async move { engine.run_many(items(&["bad", "good"]), work).await }
    });
    let mut finished = finished.clone();
    finished.wait_for(|done| *done).await.unwrap();
    assert!(!batch.is_finished(), "the claim of the bad item is still repeated");
    batch.abort();
}

#[tokio::test]
async fn a_duplicate_item_waits_as_long_as_its_leader_runs() {
    let engine = engine(MemoryStore::new(), policy().wait(Duration::ZERO));
    let work = |_, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, io::Error>(1u32)
    };
    let answers = engine.run_many(items(&["a", "a"]), work).await;
    assert!(!answers[0].as_ref().unwrap().replayed);
    assert!(answers[1].as_ref().unwrap().replayed);
}
