//! A crash at each step loses nothing, and the redrive can be repeated.

use semel_core::{Outcome, RawAnswer, State, Verdict};

use super::{
    PAID,
    fixture::{Broker, Fixture, REASON, letter_of, message},
};
use crate::dead_letter::{DeadLetter, DeadLetterSink, redrive::*};

impl Fixture {
    /// A redrive whose process is killed while it waits for the broker.
    async fn killed_at_publish(&self) {
        self.publisher.set(Broker::Hangs);
        let (redrive, id) = (self.redrive.clone(), self.letter.id.clone());
        let killed = tokio::spawn(async move { redrive.redrive(&id, REASON).await });
        self.publisher.is_called().await;
        killed.abort();
        assert!(killed.await.unwrap_err().is_cancelled());
        self.publisher.set(Broker::Confirms);
    }

    /// The consumer gets every copy, and each run of its handler succeeds. Returns how often the handler ran.
    async fn consume_all(&self) -> usize {
        let mut runs = 0;
        for copy in self.publisher.published() {
            let RawAnswer { replayed, value, .. } = self.consume(&copy, PAID()).await.unwrap();
            assert!(value.is_success());
            runs += usize::from(!replayed);
        }
        runs
    }
}

#[tokio::test]
async fn a_crash_after_the_key_was_reopened_loses_nothing() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.publisher.set(Broker::Refuses);
    let error = fixture.redrive().await.unwrap_err();
    assert!(matches!(error, RedriveError::NotConfirmed(_)), "{error:?}");
    assert!(error.to_string().contains("redrive again"), "{error}");
    assert!(fixture.is_kept().await);
    assert_eq!(fixture.state().await, None);

    fixture.publisher.set(Broker::Confirms);
    let again = fixture.redrive().await.unwrap();
    assert_eq!((again.key, again.removed), (ReopenedKey::NoRecord, true));
    assert_eq!(fixture.consume_all().await, 1);
}

/// The broker still delivers the original message, because its acknowledgement was lost.
#[tokio::test]
async fn a_late_copy_of_the_original_may_win_after_the_key_was_reopened() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.publisher.set(Broker::Refuses);
    fixture.redrive().await.unwrap_err();
    fixture.consume(&message(), PAID()).await.unwrap();
    assert_eq!(fixture.refusal().await, RedriveRefusal::Succeeded);
}

#[tokio::test]
async fn a_crash_after_the_ordering_key_was_opened_loses_nothing() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.park().await;
    fixture.publisher.set(Broker::Refuses);
    fixture.redrive().await.unwrap_err();
    // Meanwhile another event of the key has become a dead letter.
    fixture.park().await;
    fixture.publisher.set(Broker::Confirms);
    let again = fixture.redrive().await.unwrap();
    assert!(again.unparked && again.removed);
    assert_eq!(fixture.consume_all().await, 1);
}

#[tokio::test]
async fn a_lost_confirmation_leads_to_a_second_copy_and_one_run() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.publisher.set(Broker::LosesConfirmation);
    fixture.redrive().await.unwrap_err();
    assert!(fixture.is_kept().await);
    fixture.publisher.set(Broker::Confirms);
    fixture.redrive().await.unwrap();
    assert_eq!(fixture.publisher.published().len(), 2);
    assert_eq!(fixture.consume_all().await, 1);
    assert!(!fixture.is_kept().await);
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_publishes_loses_nothing() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.killed_at_publish().await;
    assert!(fixture.is_kept().await);
    fixture.redrive().await.unwrap();
    assert_eq!(fixture.publisher.published().len(), 2);
    assert_eq!(fixture.consume_all().await, 1);
}

#[tokio::test]
async fn a_copy_that_has_succeeded_before_the_second_redrive_does_not_run_again() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.killed_at_publish().await;
    assert_eq!(fixture.consume_all().await, 1);
    let error = fixture.redrive().await.unwrap_err();
    assert!(matches!(error, RedriveError::Refused(RedriveRefusal::Succeeded)), "{error:?}");
    assert_eq!(
        (fixture.publisher.published().len(), fixture.state().await),
        (1, Some(State::Completed))
    );
    fixture.redrive.discard(&fixture.letter.id, "left over").await.unwrap();
}

#[tokio::test]
async fn a_letter_that_could_not_be_removed_is_removed_by_the_second_redrive() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    *fixture.letters.fails_to_remove.lock() = true;
    let error = fixture.redrive().await.unwrap_err();
    assert!(matches!(error, RedriveError::NotRemoved(_)), "{error:?}");
    assert!(error.to_string().contains("was published"), "{error}");
    *fixture.letters.fails_to_remove.lock() = false;
    assert!(fixture.redrive().await.unwrap().removed);
    assert_eq!(fixture.consume_all().await, 1);
}

/// The consumer is faster than the redrive: the copy fails and becomes a letter before the old letter is removed.
#[tokio::test]
async fn the_letter_of_a_copy_that_fails_at_once_stays() {
    /// A broker whose consumer handles the message before the publisher gets its confirmation.
    #[derive(Debug)]
    struct FastConsumer {
        letters: Arc<dyn DeadLetterSink>,
        engine: Engine,
    }

    #[async_trait]
    impl MessagePublisher for FastConsumer {
        async fn publish(&self, copy: &Message) -> Result<()> {
            self.letters.publish(&letter_of(&self.engine, copy)).await
        }
    }

    let mut fixture = Fixture::new().await;
    fixture.fail().await;
    let consumer =
        FastConsumer { letters: fixture.letters.clone(), engine: fixture.engine.clone() };
    let letters = fixture.letters.clone();
    fixture.redrive = Redrive::new(
        fixture.engine.clone(),
        super::fixture::NAMESPACE,
        letters,
        Arc::new(consumer),
    )
    .without_record(true);
    let redriven = fixture.redrive().await.unwrap();
    assert!(!redriven.removed);
    let kept =
        fixture.letters.get(&fixture.letter.id).await.unwrap().expect("the new letter is there");
    assert!(!kept.is_copy_of(&fixture.letter));
    assert_eq!(kept.message.header("Semel-Redriven-From"), Some(&*fixture.letter.id));
}

/// Letters of a copy have the same id, so an event is one letter, however often it is redriven.
#[tokio::test]
async fn a_copy_that_fails_again_is_redriven_again() {
    let fixture = Fixture::new().await;
    fixture.fail().await;
    fixture.redrive().await.unwrap();
    let copy = fixture.publisher.published().remove(0);
    fixture.consume(&copy, Verdict::Final(Outcome::failure("declined", "no"))).await.unwrap();
    let second: DeadLetter = letter_of(&fixture.engine, &copy);
    assert_eq!(second.id, fixture.letter.id);
    fixture.letters.publish(&second).await.unwrap();
    assert_eq!(fixture.redrive().await.unwrap().key, ReopenedKey::Forgotten);
    let copy = fixture.publisher.published().remove(1);
    assert!(fixture.consume(&copy, PAID()).await.unwrap().value.is_success());
}
