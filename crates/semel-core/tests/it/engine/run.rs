//! `run` and `run_raw` with one caller after another.

use std::{io, time::Duration};

use semel_core::{
    Answer, Body, Decision, Effect, Ending, ErrorClass, ErrorKind, KeySource, Outcome, Policy,
    RecordFailures, ResolveRequest, RunError, State, Verdict, WorkError,
};

use super::*;

#[tokio::test]
async fn the_work_runs_once_and_every_retry_gets_the_same_value() {
    let (engine, _) = with_manual_clock(policy());
    let runs = RunCounter::default();
    for call in 0..3 {
        let runs = runs.clone();
        let work = move |_| async move { Ok::<_, io::Error>(runs.next()) };
        let answer: Answer<u32> = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
        assert_eq!(answer, Answer { value: 1, replayed: call > 0, stored: true, attempt: 1 });
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn an_outcome_is_kept_for_24_hours_and_not_a_second_longer() {
    let (engine, clock) = with_manual_clock(Policy::api());
    let runs = RunCounter::default();
    let call = async || {
        let runs = runs.clone();
        let work = move |_| async move { Ok::<_, io::Error>(runs.next()) };
        engine.run::<u32, _, _, _>(key("a"), fingerprint("x"), work).await.unwrap()
    };
    assert_eq!(call().await.value, 1);
    clock.advance(Duration::from_secs(86_400 - 1));
    assert_eq!(call().await.value, 1);
    clock.advance(Duration::from_secs(1));
    let again = call().await;
    assert_eq!((again.value, again.replayed), (2, false));
}

#[tokio::test]
async fn a_final_failure_is_recorded_and_replayed_for_its_own_retention() {
    let (engine, clock) = with_manual_clock(Policy::api());
    let runs = RunCounter::default();
    let call = async || {
        let runs = runs.clone();
        let work = move |_| async move {
            runs.next();
            Err::<u32, _>(WorkError::failure("card_declined", "the card was declined"))
        };
        match engine.run(key("a"), fingerprint("x"), work).await.unwrap_err() {
            RunError::Failed(failed) => failed,
            other => panic!("{other:?}"),
        }
    };
    let first = call().await;
    assert_eq!(first.failure.kind, "card_declined");
    assert!(first.stored && !first.replayed);
    clock.advance(Duration::from_secs(3599));
    assert!(call().await.replayed);
    clock.advance(Duration::from_secs(1));
    assert!(!call().await.replayed);
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_retryable_failure_frees_the_key_for_the_next_attempt() {
    let (engine, _) = with_manual_clock(policy());
    let timeout = |_| async { Err::<u32, _>(io::Error::from(io::ErrorKind::TimedOut)) };
    let error = engine.run(key("a"), fingerprint("x"), timeout).await.unwrap_err();
    let RunError::Retry(retry) = error else { panic!("{error:?}") };
    assert_eq!((retry.class, retry.ending, retry.attempt), (ErrorClass::Timeout, Ending::Retry, 1));

    // The work may have had an effect: another payload must not use the key now.
    let other =
        engine.run(key("a"), fingerprint("y"), |_| async { Ok::<_, io::Error>(1u32) }).await;
    assert!(matches!(other, Err(RunError::Mismatch)), "{other:?}");

    let work = |context: semel_core::Context| async move { Ok::<_, io::Error>(context.token()) };
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!((answer.value, answer.attempt), (2, 2));
}

#[tokio::test]
async fn an_attempt_without_effect_lets_another_payload_use_the_key() {
    let (engine, _) = with_manual_clock(policy());
    let nothing = |_| async { Err::<u32, _>(WorkError::no_effect("queue is closed")) };
    let error = engine.run(key("a"), fingerprint("x"), nothing).await.unwrap_err();
    assert!(matches!(error, RunError::Retry(retry) if retry.ending == Ending::NoEffect));
    let answer =
        engine.run(key("a"), fingerprint("y"), |_| async { Ok::<_, io::Error>(7u32) }).await;
    assert_eq!(answer.unwrap().value, 7);
}

#[tokio::test]
async fn a_key_reused_with_another_fingerprint_is_refused_at_once_even_while_running() {
    let (engine, _) = with_manual_clock(policy());
    let (started, waiting) = tokio::sync::oneshot::channel();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let work = move |_| async move {
        started.send(()).unwrap();
        let _ = finished.await;
        Ok::<_, io::Error>(1u32)
    };
    let owner = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(key("a"), fingerprint("x"), work).await }
    });
    waiting.await.unwrap();
    let other =
        engine.run(key("a"), fingerprint("y"), |_| async { Ok::<_, io::Error>(2u32) }).await;
    assert!(matches!(other, Err(RunError::Mismatch)), "{other:?}");
    finish.send(()).unwrap();
    assert_eq!(owner.await.unwrap().unwrap().value, 1);
}

#[tokio::test]
async fn the_downstream_key_is_the_same_on_every_attempt_and_differs_by_label() {
    let (engine, _) = with_manual_clock(policy());
    let attempts = Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        let attempts = attempts.clone();
        let work = move |context: semel_core::Context| async move {
            let keys = [context.downstream_key(), context.derive("charge"), context.derive("mail")];
            attempts.lock().unwrap().push(keys.map(|key| key.to_string()));
            Err::<u32, _>(WorkError::retry("again"))
        };
        let _ = engine.run(key("a"), fingerprint("x"), work).await;
    }
    let attempts = attempts.lock().unwrap();
    assert_eq!(attempts[0], attempts[1]);
    let [plain, charge, mail] = &attempts[0];
    assert!(plain != charge && charge != mail && plain != mail);
    assert_eq!(plain.len(), 36);
}

#[tokio::test]
async fn the_context_has_attempt_token_and_deadline() {
    let (engine, _) = with_manual_clock(policy().max_run(Duration::from_secs(90)));
    let work = |context: semel_core::Context| async move {
        assert!(!context.is_lease_lost());
        assert!(context.remaining() > Duration::from_secs(60));
        assert!(context.remaining() <= Duration::from_secs(90));
        Ok::<_, io::Error>((context.attempt(), context.token()))
    };
    assert_eq!(engine.run(key("a"), fingerprint("x"), work).await.unwrap().value, (1, 1));
}

#[tokio::test]
async fn an_outcome_over_the_limit_is_completed_with_its_body_omitted() {
    let (engine, _) = with_manual_clock(policy().max_outcome_bytes(2048));
    let body = vec![7u8; 10_000];
    let work = move |_| async move { Verdict::Final(Outcome::success(body)) };
    let first = engine.run_raw(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!(first.value.body(), &Body::Kept(vec![7u8; 10_000].into()));
    let again = |_| async { unreachable!("the operation is done") };
    let replay = engine.run_raw(key("a"), fingerprint("x"), again).await.unwrap();
    assert_eq!(replay.value.body(), &Body::Omitted { length: 10_000 });
    assert!(replay.replayed);
}

#[tokio::test]
async fn work_whose_value_cannot_be_serialised_does_not_run_twice() {
    #[derive(serde::Deserialize, Debug)]
    struct Unwritable;
    impl serde::Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("never"))
        }
    }
    let (engine, _) = with_manual_clock(policy());
    let runs = RunCounter::default();
    for _ in 0..2 {
        let runs = runs.clone();
        let work = move |_| async move {
            runs.next();
            Ok::<_, io::Error>(Unwritable)
        };
        let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
        assert!(matches!(error, RunError::Unreadable(done) if done.stored), "it is done");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn work_whose_failure_is_not_recorded_runs_again() {
    let only_declined = RecordFailures::When(|failure| failure.kind == "declined");
    let (engine, _) = with_manual_clock(policy().record_failures(only_declined));
    let runs = RunCounter::default();
    for _ in 0..2 {
        let runs = runs.clone();
        let work = move |_| async move {
            runs.next();
            Err::<u32, _>(WorkError::failure("sold_out", "come back tomorrow"))
        };
        let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
        assert!(matches!(error, RunError::Failed(failed) if !failed.stored));
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn the_classifier_can_be_replaced() {
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .classifier(|_: &(dyn std::error::Error + 'static)| ErrorClass::Validation)
        .build()
        .unwrap();
    let work = |_| async { Err::<u32, _>(io::Error::other("bad request")) };
    let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
    assert!(matches!(error, RunError::Failed(failed) if failed.failure.kind == "validation"));
}

#[tokio::test]
async fn attempts_count_when_they_start_and_the_limit_makes_the_key_dead() {
    let (engine, _) = with_manual_clock(policy().max_attempts(2));
    for _ in 0..2 {
        let work = |_| async { Err::<u32, _>(WorkError::retry("again")) };
        let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
        assert!(matches!(error, RunError::Retry(_)), "{error:?}");
    }
    let more = engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await;
    assert!(matches!(more, Err(RunError::Dead)), "{more:?}");
}

#[tokio::test]
async fn an_erased_key_is_gone_and_does_not_run_again() {
    let (engine, _) = with_manual_clock(policy());
    let call = async || {
        engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) }).await
    };
    call().await.unwrap();
    engine.erase(&engine.key_hash(&key("a")), "the customer asked for it").await.unwrap();
    assert!(matches!(call().await, Err(RunError::Gone)));
    assert!(engine.forget(&engine.key_hash(&key("a")), "try").await.is_ok());
    assert!(matches!(call().await, Err(RunError::Gone)));
}

#[tokio::test]
async fn under_hold_a_retry_is_unknown_until_an_operator_decides() {
    let (engine, _) = with_manual_clock(hold());
    let work = |_| async { Err::<u32, _>(WorkError::retry("the line went dead")) };
    let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
    assert!(matches!(error, RunError::Unknown), "{error:?}");

    let hash = engine.key_hash(&key("a"));
    let record = engine.store().get(&hash).await.unwrap().unwrap().record;
    assert_eq!(record.state, State::Unknown);
    let decision = Decision::Reopen(Effect::None);
    let (seen_nonce, seen_token) = (record.nonce, record.token);
    let request = ResolveRequest { key: hash, seen_nonce, seen_token, decision };
    engine.resolve(&request, "the bank says no").await.unwrap();
    let again =
        engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(5u32) }).await;
    assert_eq!(again.unwrap().value, 5);
}

#[tokio::test]
async fn two_principals_never_share_an_outcome() {
    let (engine, _) = with_manual_clock(policy());
    let principals = [
        Principal::Anonymous,
        Principal::from("alice"),
        Principal::from("bob"),
        Principal::credential("alice"),
    ];
    for (at, principal) in principals.into_iter().enumerate() {
        let key = Scope::new("test", principal, "work").key("a").unwrap();
        let answer =
            engine.run(key, fingerprint("x"), move |_| async move { Ok::<_, io::Error>(at) }).await;
        assert_eq!(answer.unwrap().value, at);
    }
}

#[tokio::test]
async fn the_builder_makes_keys_by_message_id_by_default() {
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let scope = Scope::new("test", Principal::Anonymous, "mail");
    let message = KeySource { message_id: Some("m-1"), ..KeySource::default() };
    assert_eq!(engine.key(&scope, &message).unwrap(), scope.key("idempotency:m-1").unwrap());
    assert!(engine.key(&scope, &KeySource::default()).is_err());
}

#[tokio::test]
async fn a_bad_policy_is_refused_by_name_when_the_engine_is_built() {
    let bad = Policy::api().lease(Duration::ZERO);
    let error = Engine::builder().policy(bad).build().unwrap_err();
    assert!(error.to_string().contains("lease"), "{error}");
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    assert!(engine.with_policy(bad).is_err());
    for every in [Duration::ZERO, Duration::MAX] {
        let error = Engine::builder().cleanup_every(every).build().unwrap_err();
        assert!(error.to_string().contains("cleanup_every"), "{error}");
    }
}

#[test]
fn outside_a_runtime_the_error_says_what_is_missing() {
    let engine = Engine::builder().store(MemoryStore::new()).build().unwrap();
    let call = engine.run(key("a"), fingerprint("x"), |_| async { Ok::<_, io::Error>(1u32) });
    let error = futures_util::FutureExt::now_or_never(call).unwrap().unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}

#[tokio::test]
async fn a_hostile_key_is_a_typed_error_that_names_the_rule() {
    let scope = Scope::new("test", Principal::Anonymous, "work");
    let long = "x".repeat(Key::MAX_BYTES + 1);
    for (id, rule) in
        [("", "empty"), ("a\nb", "control"), ("\u{1b}[2J", "control"), (&long, "1024")]
    {
        let error = scope.key(id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(rule), "{error}");
    }
    for id in ["'; DROP TABLE x; --", "../../etc", "ключ", "a:b", " ", &"x".repeat(Key::MAX_BYTES)]
    {
        scope.key(id).unwrap();
    }
    let bad = Scope::new("", Principal::Anonymous, "work").key("a").unwrap_err();
    assert!(bad.to_string().contains("namespace"), "{bad}");
    let bad = Scope::new("test", Principal::from(""), "work").key("a").unwrap_err();
    assert!(bad.to_string().contains("principal"), "{bad}");
}

#[tokio::test]
async fn the_downstream_key_is_the_same_in_every_process() {
    let mut keys = Vec::new();
    for _ in 0..2 {
        let engine = engine(MemoryStore::new(), policy());
        let work = |context: semel_core::Context| async move {
            Ok::<_, io::Error>(context.downstream_key().to_string())
        };
        keys.push(engine.run(key("a"), fingerprint("x"), work).await.unwrap().value);
    }
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_predicate_that_panics_does_not_leave_the_key_owned() {
    let panicking = RecordFailures::When(|_| panic!("on purpose"));
    let (engine, _) = with_manual_clock(policy().record_failures(panicking));
    for replayed in [false, true] {
        let work = |_| async { Err::<u32, _>(WorkError::failure("no", "never")) };
        let error = engine.run(key("a"), fingerprint("x"), work).await.unwrap_err();
        assert!(matches!(error, RunError::Failed(failed) if failed.replayed == replayed));
    }
}

#[tokio::test]
async fn the_work_runs_inside_the_callers_span() {
    let registry = tracing_subscriber::registry();
    let _subscriber = tracing::subscriber::set_default(registry);
    let (engine, _) = with_manual_clock(policy());
    let work = |_| async {
        let inside = tracing::Span::current();
        Ok::<_, io::Error>(inside.metadata().map(|metadata| metadata.name().to_owned()))
    };
    let answer = engine.run(key("a"), fingerprint("x"), work).await.unwrap();
    assert_eq!(answer.value.as_deref(), Some("idempotency.process"));
}

#[tokio::test]
async fn a_replay_of_a_value_that_was_too_large_says_that_the_work_is_done() {
    let (engine, _) = with_manual_clock(policy().max_outcome_bytes(1024));
    let large = |_| async { Ok::<_, io::Error>("x".repeat(5000)) };
    assert_eq!(engine.run(key("a"), fingerprint("x"), large).await.unwrap().value.len(), 5000);
    let error = engine.run(key("a"), fingerprint("x"), large).await.unwrap_err();
    assert!(matches!(error, RunError::Unreadable(done) if done.stored && done.replayed));
}

#[tokio::test]
async fn a_replay_as_another_type_says_that_the_work_is_done() {
    let (engine, _) = with_manual_clock(policy());
    let text = |_| async { Ok::<_, io::Error>("text".to_owned()) };
    engine.run(key("a"), fingerprint("x"), text).await.unwrap();
    let number = |_| async { Ok::<_, io::Error>(1u32) };
    let error = engine.run(key("a"), fingerprint("x"), number).await.unwrap_err();
    assert!(matches!(error, RunError::Unreadable(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_engine_works_when_a_test_pauses_and_advances_tokios_clock() {
    let engine = engine(MemoryStore::new(), policy());
    let runs = RunCounter::default();
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let runs = runs.clone();
        let work = move |context: semel_core::Context| async move {
            assert!(!context.is_lease_lost() && context.remaining() > Duration::from_secs(500));
            Ok::<_, io::Error>(runs.next())
        };
        assert_eq!(engine.run(key("a"), fingerprint("x"), work).await.unwrap().value, 1);
    }
}
