//! Work that is ready at its first poll runs in the caller's task and costs no task of its own.

use std::io;

use futures_util::FutureExt;
use semel_core::{Context, ErrorClass, RunError, State};

use super::{faulty_store::FaultyStore, *};

#[tokio::test]
async fn a_panic_of_work_that_never_waits_does_not_reach_its_caller() {
    let engine = engine(MemoryStore::new(), policy());
    let panicking = |_: Context| async { panic!("on purpose") };
    let call = engine.run::<u32, io::Error, _, _>(key("a"), fingerprint("x"), panicking);
    let error = call.now_or_never().expect("ready at the first poll").unwrap_err();
    assert!(matches!(error, RunError::Retry(retry) if retry.class == ErrorClass::Panic));
    let sighting = engine.store().get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert!(sighting.record.abandoned, "its effect is not known");
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
}

#[tokio::test]
async fn work_that_never_waits_leaves_no_task_and_no_in_flight_call() {
    let store = FaultyStore::default();
    let engine = engine(store.clone(), policy());
    let runs = RunCounter::default();
    for replayed in [false, true] {
        let runs = runs.clone();
        let work = move |_| async move { Ok::<_, io::Error>(runs.next()) };
        let call = engine.run(key("a"), fingerprint("x"), work);
        let answer = call.now_or_never().expect("ready at the first poll").unwrap();
        assert_eq!((answer.value, answer.replayed, answer.stored), (1, replayed, true));
    }
    assert_eq!(store.calls("claim"), 2, "the second call claimed too: no call was in flight");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
}

#[tokio::test]
async fn work_is_in_the_callers_span_before_and_after_it_first_waits() {
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
    let engine = engine(MemoryStore::new(), policy());
    let work = |_| async {
        let before = tracing::Span::current().id().map(|id| id.into_u64());
        tokio::task::yield_now().await;
        let after = tracing::Span::current().id().map(|id| id.into_u64());
        Ok::<_, io::Error>((before, after))
    };
    let (before, after) = engine.run(key("a"), fingerprint("x"), work).await.unwrap().value;
    assert!(before.is_some(), "the work is in a span");
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_caller_dropped_after_its_first_poll_leaves_the_work_to_a_task() {
    let engine = engine(MemoryStore::new(), policy());
    let (gate, runs) = (tokio::sync::watch::Sender::new(false), RunCounter::default());
    let call = engine.run(key("a"), fingerprint("x"), gated(&gate, &runs));
    assert!(call.now_or_never().is_none(), "the work waits");
    assert_eq!(runs.count(), 1, "it started in the caller's task");
    gate.send_replace(true);
    assert_eq!(engine.shutdown(Duration::from_secs(10)).await, 0);
    let sighting = engine.store().get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert_eq!(sighting.record.state, State::Completed);
}
