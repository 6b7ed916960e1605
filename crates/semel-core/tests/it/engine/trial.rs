//! Trials: what would have happened to a key, without running anything.

use metrics_util::debugging::DebuggingRecorder;
use semel_core::{ErrorKind, Outcome, State, Trial, Verdict, WorkError, telemetry::name};

use super::{
    faulty_store::{Fault, Faulty},
    *,
};

fn done() -> Verdict {
    Verdict::Final(Outcome::json(&1u32).unwrap())
}

/// A trial of the key `a`.
async fn trial(engine: &Engine, what: &str, verdict: Verdict) -> Trial {
    engine.trial(&key("a"), &asked(what), verdict).await.unwrap()
}

#[tokio::test]
async fn a_trial_says_first_then_replay_and_mismatch() {
    let (engine, _) = manual(policy());
    assert_eq!(trial(&engine, "x", done()).await, Trial::First);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
    assert_eq!(trial(&engine, "y", done()).await, Trial::Mismatch);
}

#[tokio::test]
async fn after_an_attempt_that_failed_a_trial_is_the_first_again_and_another_use_a_mismatch() {
    let failed = [
        || Verdict::Retry(WorkError::retry("later")),
        || Verdict::Indeterminate(WorkError::indeterminate("who knows")),
    ];
    for verdict in failed {
        let (engine, _) = manual(policy());
        assert_eq!(trial(&engine, "x", verdict()).await, Trial::First);
        assert_eq!(trial(&engine, "y", done()).await, Trial::Mismatch);
        assert_eq!(trial(&engine, "x", done()).await, Trial::First);
        assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
    }
}

#[tokio::test]
async fn after_an_attempt_without_effect_a_key_is_free_for_something_else() {
    let (engine, _) = manual(policy());
    let nothing = Verdict::NoEffect(WorkError::no_effect("not now"));
    assert_eq!(trial(&engine, "x", nothing).await, Trial::First);
    assert_eq!(trial(&engine, "y", done()).await, Trial::First);
}

#[tokio::test]
async fn nothing_that_is_only_tried_waits_for_an_operator() {
    let (engine, _) = manual(hold().max_attempts(1));
    for _ in 0..2 {
        let failed = Verdict::Retry(WorkError::retry("later"));
        assert_eq!(trial(&engine, "x", failed).await, Trial::First);
    }
    assert_eq!(trial(&engine, "x", done()).await, Trial::First);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
}

#[tokio::test]
async fn a_trial_counts_nothing_of_what_the_engine_counts() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let (engine, _) = manual(policy());
    trial(&engine, "x", Verdict::Retry(WorkError::retry("later"))).await;
    for what in ["x", "x", "y"] {
        trial(&engine, what, done()).await;
    }
    let counted = metrics.snapshot().into_vec();
    let names: Vec<_> = counted.iter().map(|(key, ..)| key.key().name()).collect();
    // The store is observed whoever asks it; a trial is no request, so nothing else moves.
    assert!(names.iter().all(|metric| *metric == name::STORE_LATENCY), "{names:?}");
}

#[tokio::test]
async fn a_store_that_is_down_is_an_error_and_leaves_nothing_behind() {
    let store = Faulty::default();
    let engine = engine(store.clone(), policy());
    let hash = engine.key_hash(&key("a"));
    store.fail("claim", Fault::Down, 1);
    let error = engine.trial(&key("a"), &asked("x"), done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(store.inner.get(&hash).await.unwrap().is_none());

    store.fail("complete", Fault::Down, 1);
    let error = engine.trial(&key("a"), &asked("x"), done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Busy);
    until("the claim lapses by itself", async || {
        let seen = store.inner.get(&hash).await.unwrap().unwrap();
        assert_eq!(seen.record.state, State::InProgress, "nobody renews it");
        !seen.record.is_leased(seen.at)
    })
    .await;
    assert_eq!(trial(&engine, "x", done()).await, Trial::First);
}
