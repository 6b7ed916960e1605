//! Attempts that fail: retries, the circuit breaker, order, and what a consumer does while a server is down.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_consumer::{
    Consumer, Event, EventContext, Message, Mode, OnDeadLetter, Order,
    dead_letter::{DeadLetter, DeadLetterReason, DeadLetterSink},
    memory::{FaultRate, MemoryFaults, MemorySource},
    pipeline::{Backoff, BreakerPosition, CircuitBreaker},
};
use semel_core::{
    Engine, Error, ErrorKind, KeyStrategy, MemoryStore, OnLostOwner, Result, WorkError,
};
use serde_json::Value;

use crate::fixture::{SHORT, Scene, message, run};

#[tokio::test]
async fn an_attempt_that_may_be_repeated_runs_again_until_it_succeeds() {
    for order in [Order::Strict, Order::Relaxed] {
        let scene = Scene::new([message("a").with_ordering_key("k")]);
        let handler = scene.handler(|_, context| match context.attempt() {
            1 | 2 => Err(WorkError::retry("not yet")),
            _ => Ok(Value::Null),
        });
        run(scene.builder().order(order).handler(handler)).await;
        assert_eq!((scene.runs(), scene.letters().len()), (3, 0), "{order:?}");
    }
}

#[tokio::test]
async fn attempts_are_limited_in_all_and_the_last_failure_is_a_dead_letter() {
    for order in [Order::Strict, Order::Relaxed] {
        let scene = Scene::new([message("a").with_ordering_key("k")]);
        let handler = scene.handler(|_, _| Err(WorkError::retry("never")));
        run(scene.builder().order(order).max_attempts(3).handler(handler)).await;
        let letters = scene.letters();
        assert_eq!((scene.runs(), letters.len()), (3, 1), "{order:?}");
        assert_eq!(
            (letters[0].reason, letters[0].attempts),
            (DeadLetterReason::AttemptsExhausted, 3)
        );
    }
}

#[tokio::test]
async fn with_tracked_ids_lost_deliveries_are_no_attempts_and_attempts_are_limited() {
    for (fails, runs, letters) in [(false, 1, 0), (true, 3, 1)] {
        let scene = Scene::new([message("a")]);
        for _ in 0..10 {
            let mut taken = semel_consumer::Source::receive(&scene.source, 1).await.unwrap();
            taken.remove(0).nack(Duration::ZERO).await.unwrap();
        }
        let handler = scene.handler(move |_, _| match fails {
            true => Err(WorkError::retry("never")),
            false => Ok(Value::Null),
        });
        run(scene.builder().mode(Mode::TrackIds).max_attempts(3).handler(handler)).await;
        assert_eq!((scene.runs(), scene.letters().len()), (runs, letters));
    }
}

#[tokio::test]
async fn a_panic_is_an_attempt() {
    let scene = Scene::new([message("a")]);
    let handler = scene.handler(|_, _| panic!("a bug"));
    run(scene.builder().max_attempts(2).handler(handler)).await;
    assert_eq!((scene.runs(), scene.letters().len()), (2, 1));
}

#[tokio::test]
async fn under_hold_an_unknown_effect_is_left_to_an_operator() {
    let scene = Scene::new([message("a")]);
    let handler = scene.handler(|_, _| Err(WorkError::indeterminate("the line went dead")));
    run(scene.builder().on_lost_owner(OnLostOwner::Hold).handler(handler)).await;
    assert_eq!((scene.runs(), scene.letters()[0].reason), (1, DeadLetterReason::Unknown));
}

/// The order in which handlers succeeded.
async fn order_of_successes(order: Order, failing: &'static str) -> Vec<String> {
    let keyed = |id: &str| message(id).with_ordering_key("k");
    let scene = Scene::new([keyed("1"), keyed("2"), keyed("3")]);
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = done.clone();
    let handler = scene.handler(move |event, context| {
        let id = event.message.message_id.clone().unwrap();
        if id == failing && context.attempt() < 3 {
            return Err(WorkError::retry("not yet"));
        }
        seen.lock().push(id);
        Ok(Value::Null)
    });
    run(scene.builder().order(order).concurrency(8).handler(handler)).await;
    Arc::try_unwrap(done).expect("the handler is gone").into_inner()
}

#[tokio::test]
async fn with_strict_order_a_retry_holds_its_key() {
    assert_eq!(order_of_successes(Order::Strict, "1").await, ["1", "2", "3"]);
}

#[tokio::test]
async fn with_relaxed_order_later_events_pass_a_retry() {
    assert_eq!(order_of_successes(Order::Relaxed, "1").await, ["2", "3", "1"]);
}

#[tokio::test]
async fn a_retry_holds_no_place_of_a_handler() {
    let stuck = (0..4).map(|n| message(&format!("stuck-{n}")).with_ordering_key(format!("s{n}")));
    let free = (0..4).map(|n| message(&format!("free-{n}")).with_ordering_key(format!("f{n}")));
    let scene = Scene::new(stuck.chain(free));
    let pauses = Backoff { first: Duration::from_millis(300), max: Duration::from_millis(300) };
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = done.clone();
    let handler = scene.handler(move |event, context| {
        let id = event.message.message_id.clone().unwrap();
        if id.starts_with("stuck") && context.attempt() == 1 {
            return Err(WorkError::retry("not yet"));
        }
        seen.lock().push(id);
        Ok(Value::Null)
    });
    run(scene.builder().concurrency(2).max_in_flight(8).backoff(pauses).handler(handler)).await;
    let done = done.lock();
    assert!(done[..4].iter().all(|id| id.starts_with("free")), "{done:?}");
}

#[tokio::test]
async fn after_a_dead_letter_the_key_goes_on_or_is_parked() {
    for (policy, runs, parked) in [(OnDeadLetter::Continue, 3, 0), (OnDeadLetter::Park, 1, 2)] {
        let keyed = |id: &str| message(id).with_ordering_key("k");
        let scene = Scene::new([keyed("1"), keyed("2"), keyed("3")]);
        let handler = scene.handler(|event, _| match event.message.message_id.as_deref() {
            Some("1") => Err(WorkError::failure("broken", "cannot be handled")),
            _ => Ok(Value::Null),
        });
        run(scene.builder().on_dead_letter(policy).handler(handler)).await;
        let reasons: Vec<_> = scene.letters().iter().map(|it| it.reason).collect();
        let counted = reasons.iter().filter(|it| **it == DeadLetterReason::Parked).count();
        assert_eq!((scene.runs(), counted), (runs, parked), "{policy:?}: {reasons:?}");
        assert_eq!(reasons[0], DeadLetterReason::Failed);
    }
}

#[tokio::test]
async fn an_open_circuit_breaker_pauses_the_source_and_burns_no_attempts() {
    let scene = Scene::new((0..20).map(|n| message(&format!("m{n}"))));
    let pause = Duration::from_millis(50);
    let breaker = CircuitBreaker::new(3, Backoff { first: pause, max: pause });
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = is_broken.clone();
    let handler = scene.handler(move |_, _| match broken.load(SeqCst) {
        true => Err(WorkError::retry("the bank is down")),
        false => Ok(Value::Null),
    });
    let consumer = scene
        .builder()
        .concurrency(4)
        .max_attempts(5)
        .backoff(SHORT)
        .circuit_breaker(breaker.clone())
        .handler(handler)
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run());
    while breaker.position() != BreakerPosition::Open {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_broken.store(false, SeqCst);
    running.await.unwrap().unwrap();
    assert_eq!(scene.letters().len(), 0, "no event lost its attempts to the breaker");
    assert_eq!(scene.acks(), 20);
}

#[tokio::test]
async fn a_recorded_outcome_answers_while_the_circuit_breaker_is_open() {
    let scene = Scene::new([message("a")]);
    run(scene.builder().handler(scene.succeeds())).await;
    let breaker = CircuitBreaker::new(
        1,
        Backoff { first: Duration::from_secs(600), max: Duration::from_secs(600) },
    );
    let source = MemorySource::new();
    source.publish(message("new"));
    source.publish(message("a"));
    let handler = scene.handler(|_, _| Err(WorkError::retry("down")));
    let consumer = Consumer::builder(source.clone())
        .name("tests")
        .store(scene.store.clone())
        .unwrap()
        .drop_dead_letters()
        .concurrency(1)
        .circuit_breaker(breaker.clone())
        .handler(handler)
        .build()
        .unwrap();
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    while source.open() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(breaker.position(), BreakerPosition::Open);
    control.stop();
    running.await.unwrap().unwrap();
}

/// A sink that is down for a while.
#[derive(Debug, Default)]
struct FailingSink {
    is_up: AtomicBool,
    letters: Mutex<Vec<DeadLetter>>,
}

#[async_trait::async_trait]
impl DeadLetterSink for FailingSink {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        if !self.is_up.load(SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the sink is down"));
        }
        self.letters.lock().push(letter.clone());
        Ok(())
    }
    async fn check(&self) -> Result<()> {
        Ok(())
    }
    fn name(&self) -> String {
        "failing".into()
    }
}

#[tokio::test]
async fn without_a_dead_letter_sink_that_works_nothing_is_acknowledged() {
    let scene = Scene::new([message("fails"), Message::new("t", "no id")]);
    let sink = Arc::new(FailingSink::default());
    let handler = scene.handler(|_, _| Err(WorkError::failure("broken", "always")));
    let consumer = scene
        .builder()
        .max_attempts(50)
        .dead_letters(sink.clone())
        .handler(handler)
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.source.open(), 2, "both are still in the broker");
    sink.is_up.store(true, SeqCst);
    running.await.unwrap().unwrap();
    let mut reasons: Vec<_> = sink.letters.lock().iter().map(|it| it.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["failed", "invalid"]);
}

#[tokio::test]
async fn lost_settlements_and_a_broker_that_was_down_lose_and_repeat_nothing() {
    let source = MemorySource::with_ack_deadline(Duration::from_millis(200));
    (0..200).for_each(|n| {
        source.publish(message(&format!("m{n}")));
    });
    source.inject(MemoryFaults {
        lost_settlements: FaultRate::of(1, 4),
        lost_confirmations: FaultRate::of(1, 4),
        early_redeliveries: FaultRate::of(1, 4),
        ..MemoryFaults::NONE
    });
    source.end();
    let scene = Scene::new([]);
    let consumer = Consumer::builder(source.clone())
        .name("tests")
        .store(MemoryStore::new())
        .unwrap()
        .drop_dead_letters()
        .backoff(SHORT)
        .handler(scene.succeeds())
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run());
    source.inject(MemoryFaults { is_down: true, ..MemoryFaults::NONE });
    tokio::time::sleep(Duration::from_millis(100)).await;
    source.inject(MemoryFaults { lost_confirmations: FaultRate::of(1, 3), ..MemoryFaults::NONE });
    running.await.unwrap().unwrap();
    assert_eq!(scene.runs(), 200);
}

#[tokio::test]
async fn a_paused_consumer_receives_nothing_until_it_is_resumed() {
    let source = MemorySource::new();
    let scene = Scene::new([]);
    let consumer = Consumer::builder(source.clone())
        .store(MemoryStore::new())
        .unwrap()
        .drop_dead_letters()
        .handler(scene.succeeds())
        .build()
        .unwrap();
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    control.pause();
    tokio::task::yield_now().await;
    source.publish(message("a"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((scene.runs(), control.is_paused()), (0, true));
    control.resume();
    source.until_settled().await;
    assert_eq!(scene.runs(), 1);
    control.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_lets_handlers_finish_and_gives_the_rest_back() {
    let source = MemorySource::new();
    (0..6).for_each(|n| {
        source.publish(message(&format!("m{n}")));
    });
    let (started, gate) =
        (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (starting, passing) = (started.clone(), gate.clone());
    let consumer = Consumer::builder(source.clone())
        .store(MemoryStore::new())
        .unwrap()
        .drop_dead_letters()
        .order(Order::Relaxed)
        .concurrency(2)
        .max_in_flight(6)
        .handler(move |_: Event<Value>, _: EventContext| {
            let (started, gate) = (starting.clone(), passing.clone());
            async move {
                started.add_permits(1);
                gate.acquire().await.unwrap().forget();
                Ok::<_, WorkError>(())
            }
        })
        .build()
        .unwrap();
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    started.acquire_many(2).await.unwrap().forget();
    while control.in_flight() < 6 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    control.stop();
    gate.add_permits(2);
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.returned, report.cut_off), (4, 0));
    assert_eq!(source.open(), 4, "two were acknowledged");
}

#[tokio::test]
async fn a_stage_that_panics_costs_one_message_and_no_worker() {
    let scene = Scene::new((0..20).map(|n| message(&format!("m{n}"))));
    let strategy = KeyStrategy::custom(|source| {
        let id = source.message_id.unwrap_or_default();
        assert!(id != "m3", "a bug in a key strategy");
        Some(id.to_owned())
    });
    run(scene.builder().key(strategy).concurrency(1).max_in_flight(1).handler(scene.succeeds()))
        .await;
    assert_eq!((scene.runs(), scene.acks(), scene.letters().len()), (19, 19, 1));
}

#[tokio::test]
async fn an_engine_that_others_use_is_not_shut_down() {
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let scene = Scene::new([message("a")]);
    run(scene.builder().engine(engine.clone()).handler(scene.succeeds())).await;
    scene.source.publish(message("b"));
    run(scene.builder().engine(engine).handler(scene.succeeds())).await;
    assert_eq!(scene.runs(), 2);
}

#[tokio::test]
async fn a_probe_that_hangs_does_not_stop_the_consumer() {
    let pause = Duration::from_millis(50);
    let breaker = CircuitBreaker::new(1, Backoff { first: pause, max: pause });
    let scene = Scene::new(["fails", "hangs", "a", "b"].map(message));
    let handler = |event: Event<Value>, context: EventContext| async move {
        match event.message.message_id.as_deref() {
            Some("fails") if context.attempt() == 1 => Err(WorkError::retry("down")),
            Some("hangs") => std::future::pending().await,
            _ => Ok(Value::Null),
        }
    };
    let builder = scene.builder().concurrency(4).grace(Duration::ZERO).circuit_breaker(breaker);
    let consumer = builder.handler(handler).build().unwrap();
    let control = consumer.control();
    let running = tokio::spawn(consumer.run());
    while scene.acks() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    control.stop();
    assert_eq!(running.await.unwrap().unwrap().cut_off, 1);
}
