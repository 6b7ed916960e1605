//! Trials say what would have happened to a key, without running work.

use metrics_util::debugging::DebuggingRecorder;
use semel_core::{ErrorKind, Outcome, State, Trial, Verdict, WorkError, telemetry::name};

use super::{
    faulty_store::{FaultyStore, StepFault},
    *,
};

fn done() -> Verdict {
    Verdict::Final(Outcome::json(&1u32).unwrap())
}

/// A trial of the key `a`.
async fn trial(engine: &Engine, content: &str, verdict: Verdict) -> Trial {
    engine.trial(&key("a"), &fingerprint(content), verdict).await.unwrap()
}

#[tokio::test]
async fn a_trial_says_first_then_replay_and_mismatch() {
    let (engine, _) = with_manual_clock(policy());
    assert_eq!(trial(&engine, "x", done()).await, Trial::First);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
    assert_eq!(trial(&engine, "y", done()).await, Trial::Mismatch);
}

#[tokio::test]
async fn after_a_failed_attempt_a_trial_is_first_again_and_another_fingerprint_a_mismatch() {
    let failed = [
        || Verdict::Retry(WorkError::retry("later")),
        || Verdict::Indeterminate(WorkError::indeterminate("not known")),
    ];
    for verdict in failed {
        let (engine, _) = with_manual_clock(policy());
        assert_eq!(trial(&engine, "x", verdict()).await, Trial::First);
        assert_eq!(trial(&engine, "y", done()).await, Trial::Mismatch);
        assert_eq!(trial(&engine, "x", done()).await, Trial::First);
        assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
    }
}

#[tokio::test]
async fn after_an_attempt_without_effect_a_key_is_free_for_another_fingerprint() {
    let (engine, _) = with_manual_clock(policy());
    let nothing = Verdict::NoEffect(WorkError::no_effect("not now"));
    assert_eq!(trial(&engine, "x", nothing).await, Trial::First);
    assert_eq!(trial(&engine, "y", done()).await, Trial::First);
}

#[tokio::test]
async fn a_key_of_a_trial_never_waits_for_an_operator() {
    let (engine, _) = with_manual_clock(hold().max_attempts(1));
    for _ in 0..2 {
        let failed = Verdict::Retry(WorkError::retry("later"));
        assert_eq!(trial(&engine, "x", failed).await, Trial::First);
    }
    assert_eq!(trial(&engine, "x", done()).await, Trial::First);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Replay);
}

#[tokio::test]
async fn a_trial_does_not_change_the_engines_metrics() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let (engine, _) = with_manual_clock(policy());
    trial(&engine, "x", Verdict::Retry(WorkError::retry("later"))).await;
    for content in ["x", "x", "y"] {
        trial(&engine, content, done()).await;
    }
    let counted = metrics.snapshot().into_vec();
    let names: Vec<_> = counted.iter().map(|(key, ..)| key.key().name()).collect();
    // Every call of the store is measured. A trial is no request, so no other metric changes.
    assert!(names.iter().all(|metric| *metric == name::STORE_LATENCY), "{names:?}");
}

#[tokio::test]
async fn a_store_that_is_down_is_an_error_and_leaves_no_owner() {
    let store = FaultyStore::default();
    let engine = engine(store.clone(), policy());
    let hash = engine.key_hash(&key("a"));
    store.fail("claim", StepFault::Down, 1);
    let error = engine.trial(&key("a"), &fingerprint("x"), done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(store.inner.get(&hash).await.unwrap().is_none());

    store.fail("complete", StepFault::Down, 1);
    let error = engine.trial(&key("a"), &fingerprint("x"), done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(trial(&engine, "x", done()).await, Trial::Busy);
    until("the lease ends by itself", async || {
        let sighting = store.inner.get(&hash).await.unwrap().unwrap();
        assert_eq!(sighting.record.state, State::InProgress, "it is not renewed");
        !sighting.record.is_leased(sighting.at)
    })
    .await;
    until("the grace period ends", async || trial(&engine, "x", done()).await == Trial::First)
        .await;
}
