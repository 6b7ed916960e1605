//! What a redrive promises, in every state of the key and after a crash at every step.

mod consumer;
mod crashes;
mod fixture;

use std::time::Duration;

use semel_core::{Outcome, Policy, RunError, State, Verdict, WorkError};

use self::fixture::{Fixture, LEASE, REASON, message};
use super::*;

const PAID: fn() -> Verdict = || Verdict::Final(Outcome::success("paid"));

#[tokio::test]
async fn a_failed_event_runs_again() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    let redriven = fixture.redrive().await.unwrap();
    assert_eq!((redriven.key, redriven.removed), (ReopenedKey::Forgotten, true));
    let copy = &fixture.publisher.published()[0];
    assert_eq!((&copy.body, &copy.topic), (&message().body, &message().topic));
    let answer = fixture.consume(copy, PAID()).await.unwrap();
    assert!(!answer.replayed && answer.value.is_success());
    assert!(!fixture.is_kept().await);
}

#[tokio::test]
async fn an_event_that_used_all_attempts_gets_them_again() {
    let fixture = Fixture::with_policy(Policy::events().lease(LEASE).max_attempts(1)).await;
    fixture.retry().await;
    let dead = fixture.consume(&message(), PAID()).await;
    assert!(matches!(dead, Err(RunError::Dead)), "{dead:?}");
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Reopened);
    let answer = fixture.consume(&fixture.publisher.published()[0], PAID()).await.unwrap();
    assert!(!answer.replayed && answer.value.is_success());
}

#[tokio::test]
async fn a_released_key_that_is_out_of_attempts_gets_them_again() {
    let fixture = Fixture::with_policy(Policy::events().lease(LEASE).max_attempts(1)).await;
    fixture.retry().await;
    assert_eq!(fixture.state().await, Some(State::Open));
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Forgotten);
    fixture.consume(&fixture.publisher.published()[0], PAID()).await.unwrap();
}

/// A copy may claim the open key at any time and succeed: the record must not be deleted.
#[tokio::test]
async fn a_released_key_with_attempts_left_is_not_touched() {
    let fixture = Fixture::new().await;
    fixture.retry().await;
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Unchanged);
    assert_eq!(fixture.state().await, Some(State::Open));
    let answer = fixture.consume(&fixture.publisher.published()[0], PAID()).await.unwrap();
    assert_eq!(answer.attempt, 2);
}

#[tokio::test]
async fn an_event_whose_record_has_expired_runs_again() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.clock.advance(Duration::from_secs(86_400));
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::NoRecord);
    assert_eq!(fixture.publisher.published().len(), 1);
}

#[tokio::test]
async fn with_the_store_of_another_consumer_nothing_is_published() {
    let mut fixture = Fixture::new().await;
    fixture.redrive = fixture.redrive.clone().without_record(false);
    assert_eq!(fixture.refusal().await, RedriveRefusal::NotRecorded);
    fixture.fail().await;
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Forgotten);
}

#[tokio::test]
async fn a_message_without_a_key_is_published_again() {
    let fixture = Fixture::new().await;
    let letter =
        DeadLetter { key: None, id: "no-key".to_owned(), event_id: None, ..fixture.letter.clone() };
    super::super::DeadLetterSink::publish(&*fixture.letters, &letter).await.unwrap();
    let redriven = fixture.redrive.redrive("no-key", REASON).await.unwrap();
    assert_eq!((redriven.key, redriven.removed), (ReopenedKey::NoRecord, true));
    assert!(fixture.is_kept().await, "other letters stay");
}

#[tokio::test]
async fn a_recorded_success_is_never_run_again() {
    let fixture = Fixture::new().await;
    fixture.succeed().await;
    let refusal = fixture.refusal().await;
    assert_eq!(refusal, RedriveRefusal::Succeeded);
    assert!(refusal.to_string().contains("remove the letter"), "{refusal}");
    assert_eq!(fixture.state().await, Some(State::Completed));
}

#[tokio::test]
async fn an_event_that_runs_is_refused_until_its_owner_is_lost() {
    let fixture = Fixture::new().await;
    let key = fixture::key_of(&message());
    let fingerprint = Event::from_message(fixture.letter.message.clone()).unwrap().fingerprint();
    let engine = fixture.engine.clone();
    let running =
        tokio::spawn(
            async move { engine.run_raw(key, fingerprint, |_| std::future::pending()).await },
        );
    while fixture.state().await != Some(State::InProgress) {
        tokio::task::yield_now().await;
    }
    let refusal = fixture.refusal().await;
    let RedriveRefusal::Running { remaining } = refusal else { panic!("{refusal:?}") };
    assert!(remaining <= LEASE && refusal.to_string().contains("try again in"), "{refusal}");
    running.abort();
    fixture.clock.advance(LEASE + Duration::from_secs(1));
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Unchanged);
}

#[tokio::test]
async fn an_unknown_effect_needs_a_decision_first() {
    let policy = Policy::events().lease(LEASE).on_lost_owner(semel_core::OnLostOwner::Hold);
    let fixture = Fixture::with_policy(policy).await;
    let lost = Verdict::Indeterminate(WorkError::indeterminate("no reply"));
    fixture.consume(&message(), lost).await.unwrap_err();
    assert_eq!(fixture.state().await, Some(State::Unknown));
    let refusal = fixture.refusal().await;
    assert_eq!(refusal, RedriveRefusal::Unknown);
    assert!(refusal.to_string().contains("semel keys resolve"), "{refusal}");
}

#[tokio::test]
async fn an_erased_event_stays_erased() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.engine.erase(fixture.letter.key.as_ref().unwrap(), "privacy").await.unwrap();
    assert_eq!(fixture.refusal().await, RedriveRefusal::Erased);
}

#[tokio::test]
async fn a_redrive_needs_a_reason_and_a_letter() {
    let fixture = Fixture::new().await;
    let redrive = |id: String, reason: &'static str| {
        let redrive = fixture.redrive.clone();
        async move { redrive.redrive(&id, reason).await.unwrap_err() }
    };
    for reason in ["", " \n"] {
        let error = redrive(fixture.letter.id.clone(), reason).await;
        assert!(matches!(error, RedriveError::NoReason), "{error:?}");
    }
    let error = redrive("missing".to_owned(), REASON).await;
    assert!(matches!(&error, RedriveError::NotFound { id } if id == "missing"), "{error:?}");
    assert!(fixture.publisher.published().is_empty());
}

#[tokio::test]
async fn a_parked_ordering_key_is_open_when_the_copy_is_published() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.park().await;
    assert!(fixture.redrive().await.unwrap().unparked);
    let open = crate::pipeline::park::open_parked(
        &fixture.engine,
        &fixture::scope(),
        "customer-7",
        REASON,
    )
    .await;
    assert_eq!(open.unwrap(), Unparked::No, "it was opened before");
}

#[tokio::test]
async fn an_ordering_key_of_a_cloud_event_is_opened() {
    let fixture = Fixture::new().await;
    let message = Message::new("orders", "{}")
        .with_header("ce-specversion", "1.0")
        .with_header("ce-id", "1")
        .with_header("ce-source", "/shop")
        .with_header("ce-type", "t")
        .with_header("ce-partitionkey", "customer-7");
    let letter = DeadLetter { message: Arc::new(message), ..fixture.letter.clone() };
    super::super::DeadLetterSink::publish(&*fixture.letters, &letter).await.unwrap();
    fixture.park().await;
    assert!(fixture.redrive().await.unwrap().unparked);
}

/// An inbox decides for handlers that write in a transaction: the engine's store may not know their events.
#[tokio::test]
async fn every_place_with_records_has_to_agree() {
    #[derive(Debug)]
    struct Succeeded;

    #[async_trait]
    impl EventRecords for Succeeded {
        async fn reopen(&self, _: &DeadLetter, _: &str) -> Result<ReopenedKey, RedriveError> {
            Err(RedriveRefusal::Succeeded.into())
        }
    }

    let mut fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.redrive = fixture.redrive.clone().also_recorded_in(Arc::new(Succeeded));
    assert_eq!(fixture.refusal().await, RedriveRefusal::Succeeded);
    assert_eq!(fixture.state().await, Some(State::Completed), "the store was not changed");
}

#[tokio::test]
async fn a_letter_that_is_discarded_is_not_published() {
    let fixture = Fixture::new().await;
    let error = fixture.redrive.discard(&fixture.letter.id, " ").await.unwrap_err();
    assert!(matches!(error, RedriveError::NoReason), "{error:?}");
    fixture.redrive.discard(&fixture.letter.id, REASON).await.unwrap();
    assert!(!fixture.is_kept().await && fixture.publisher.published().is_empty());
    let error = fixture.redrive.discard(&fixture.letter.id, REASON).await.unwrap_err();
    assert!(matches!(error, RedriveError::NotFound { .. }), "{error:?}");
}
