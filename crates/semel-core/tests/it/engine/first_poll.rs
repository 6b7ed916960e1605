//! Work that ends at its first poll: it runs where it was asked for, and costs no task.

use std::io;

use futures_util::FutureExt;
use semel_core::{Context, ErrorClass, RunError, State};

use super::{faulty_store::Faulty, *};

#[tokio::test]
async fn a_panic_of_work_that_never_waits_does_not_reach_its_caller() {
    let engine = engine(MemoryStore::new(), policy());
    let panicking = |_: Context| async { panic!("on purpose") };
    let call = engine.run::<u32, io::Error, _, _>(key("a"), asked("x"), panicking);
    let error = call.now_or_never().expect("nothing waits").unwrap_err();
    assert!(matches!(error, RunError::Retry(retry) if retry.class == ErrorClass::Panic));
    let seen = engine.store().get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert!(seen.record.abandoned, "what it did before nobody knows");
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
}

#[tokio::test]
async fn work_that_never_waits_leaves_no_task_and_no_flight_behind() {
    let store = Faulty::default();
    let engine = engine(store.clone(), policy());
    let runs = Runs::default();
    for replayed in [false, true] {
        let runs = runs.clone();
        let work = move |_| async move { Ok::<_, io::Error>(runs.next()) };
        let call = engine.run(key("a"), asked("x"), work);
        let answer = call.now_or_never().expect("nothing waits").unwrap();
        assert_eq!((answer.value, answer.replayed, answer.stored), (1, replayed, true));
    }
    assert_eq!(store.calls("claim"), 2, "the second asked the store: no flight was there to join");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(engine.shutdown(Duration::ZERO).await, 0);
}

#[tokio::test]
async fn work_is_in_the_callers_span_before_and_after_it_first_waits() {
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
    let engine = engine(MemoryStore::new(), policy());
    let work = |_| async {
        let here = tracing::Span::current().id().map(|id| id.into_u64());
        tokio::task::yield_now().await;
        let there = tracing::Span::current().id().map(|id| id.into_u64());
        Ok::<_, io::Error>((here, there))
    };
    let (here, there) = engine.run(key("a"), asked("x"), work).await.unwrap().value;
    assert!(here.is_some(), "the work is in a span");
    assert_eq!(here, there);
}

#[tokio::test]
async fn a_caller_dropped_after_its_first_poll_leaves_the_work_to_a_task() {
    let engine = engine(MemoryStore::new(), policy());
    let (gate, runs) = (tokio::sync::watch::Sender::new(false), Runs::default());
    let call = engine.run(key("a"), asked("x"), gated(&gate, &runs));
    assert!(call.now_or_never().is_none(), "the work waits");
    assert_eq!(runs.count(), 1, "it began where it was asked for");
    gate.send_replace(true);
    assert_eq!(engine.shutdown(Duration::from_secs(10)).await, 0);
    let seen = engine.store().get(&engine.key_hash(&key("a"))).await.unwrap().unwrap();
    assert_eq!(seen.record.state, State::Completed);
}
