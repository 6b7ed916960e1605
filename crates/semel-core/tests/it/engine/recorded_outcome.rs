//! `recorded_outcome` reads what a claim would replay, and is no attempt.

use std::{io, time::Duration};

use semel_core::RunError;

use super::*;

#[tokio::test]
async fn the_outcome_of_a_completed_key_is_read_without_an_attempt() {
    let (engine, clock) = with_manual_clock(Policy::api());
    let read = async |content| match engine.recorded_outcome(&key("a"), &fingerprint(content)).await
    {
        Ok(outcome) => outcome.map(|answer| answer.value.decode::<u32>().unwrap()),
        Err(RunError::Mismatch) => Some(u32::MAX),
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!(read("x").await, None, "the key was never claimed");
    let work = |_| async { Ok::<_, io::Error>(7u32) };
    engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!(read("x").await, Some(7));
    assert_eq!(read("y").await, Some(u32::MAX), "another fingerprint gets no outcome");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(read("x").await, None, "the outcome is no longer kept");
}

#[tokio::test]
async fn a_key_in_progress_has_no_outcome_and_stays_in_progress() {
    let (engine, _) = with_manual_clock(policy());
    let (called, read) = (engine.clone(), engine.clone());
    let work = move |_| async move {
        let outcome = read.recorded_outcome(&key("a"), &fingerprint("x")).await.unwrap();
        Ok::<_, io::Error>(outcome.is_none())
    };
    let answer = called.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert!(answer.value && answer.stored);
}
