//! A consumer's engine, its dead letters, and a broker that can lose confirmations.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use semel_core::{
    Error, ErrorKind, Fingerprint, Key, KeyStrategy, ManualClock, MemoryStore, Outcome, Policy,
    RawAnswer, RunError, State, Verdict, WorkError,
};
use tokio::sync::Notify;

use super::super::*;
use crate::dead_letter::{DeadLetterReason, DeadLetterSink, MemoryDeadLetters};

pub(super) const NAMESPACE: &str = "shop";
pub(super) const REASON: &str = "the bank is back";
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// What the broker does with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Broker {
    #[default]
    Confirms,
    /// The message does not arrive.
    Refuses,
    /// The message arrives, and its confirmation is lost.
    LosesConfirmation,
    /// The message arrives, and there is no reply.
    Hangs,
}

#[derive(Debug, Default)]
pub(super) struct TestPublisher {
    broker: Mutex<Broker>,
    published: Mutex<Vec<Message>>,
    called: Notify,
}

impl TestPublisher {
    pub(super) fn set(&self, broker: Broker) {
        *self.broker.lock() = broker;
    }

    pub(super) fn published(&self) -> Vec<Message> {
        self.published.lock().clone()
    }

    pub(super) async fn is_called(&self) {
        self.called.notified().await;
    }
}

#[async_trait]
impl MessagePublisher for TestPublisher {
    async fn publish(&self, message: &Message) -> Result<()> {
        let broker = *self.broker.lock();
        if broker != Broker::Refuses {
            self.published.lock().push(message.clone());
        }
        self.called.notify_one();
        match broker {
            Broker::Confirms => Ok(()),
            Broker::Refuses | Broker::LosesConfirmation => {
                Err(Error::new(ErrorKind::Unavailable, "no confirmation"))
            }
            Broker::Hangs => std::future::pending().await,
        }
    }
}

/// Dead letters whose removals can fail.
#[derive(Debug, Default)]
pub(super) struct TestLetters {
    pub(super) kept: MemoryDeadLetters,
    pub(super) fails_to_remove: Mutex<bool>,
}

#[async_trait]
impl DeadLetterSink for TestLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        self.kept.publish(letter).await
    }

    async fn check(&self) -> Result<()> {
        self.kept.check().await
    }

    fn name(&self) -> String {
        self.kept.name()
    }
}

#[async_trait]
impl DeadLetterQueue for TestLetters {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        self.kept.list(after, limit).await
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        self.kept.get(id).await
    }

    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        if *self.fails_to_remove.lock() {
            return Err(Error::new(ErrorKind::Unavailable, "the dead letters are down"));
        }
        self.kept.remove(letter).await
    }
}

/// The consumer `billing`, whose event `order-1` is a dead letter.
pub(super) struct Fixture {
    pub(super) clock: ManualClock,
    pub(super) engine: Engine,
    pub(super) letters: Arc<TestLetters>,
    pub(super) publisher: Arc<TestPublisher>,
    pub(super) redrive: Redrive,
    pub(super) letter: DeadLetter,
}

pub(super) fn message() -> Message {
    Message {
        published_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        ..Message::new("orders", "{}").with_id("order-1").with_ordering_key("customer-7")
    }
}

pub(super) fn scope() -> Scope {
    Scope::new(NAMESPACE, Principal::Anonymous, "billing")
}

/// The key that the consumer gives to a message.
pub(super) fn key_of(message: &Message) -> Key {
    let event = Event::from_message(Arc::new(message.clone())).unwrap();
    event.key(&scope(), &KeyStrategy::message_id()).unwrap()
}

impl Fixture {
    pub(super) async fn new() -> Self {
        Self::with_policy(Policy::events().lease(LEASE)).await
    }

    pub(super) async fn with_policy(policy: Policy) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let engine = Engine::builder().store(store).policy(policy).build().unwrap();
        let (letters, publisher) = (Arc::<TestLetters>::default(), Arc::<TestPublisher>::default());
        let redrive = Redrive::new(engine.clone(), NAMESPACE, letters.clone(), publisher.clone())
            .without_record(true);
        let letter = letter_of(&engine, &message());
        letters.publish(&letter).await.unwrap();
        Self { clock, engine, letters, publisher, redrive, letter }
    }

    pub(super) async fn redrive(&self) -> Result<Redriven, RedriveError> {
        self.redrive.redrive(&self.letter.id, REASON).await
    }

    pub(super) async fn refusal(&self) -> RedriveRefusal {
        let error = self.redrive().await.unwrap_err();
        assert!(self.publisher.published().is_empty(), "nothing is published");
        assert!(self.is_kept().await, "the letter is kept");
        match error {
            RedriveError::Refused(refusal) => refusal,
            error => panic!("not refused, but {error:?}"),
        }
    }

    pub(super) async fn is_kept(&self) -> bool {
        self.letters.get(&self.letter.id).await.unwrap().is_some()
    }

    /// What the consumer does with a copy of a message.
    pub(super) async fn consume(
        &self,
        message: &Message,
        verdict: Verdict,
    ) -> Result<RawAnswer, RunError> {
        let fingerprint = Event::from_message(Arc::new(message.clone())).unwrap().fingerprint();
        self.engine.run_raw(key_of(message), fingerprint, |_| async { verdict }).await
    }

    pub(super) async fn succeed(&self) {
        self.consume(&message(), Verdict::Final(Outcome::success("paid"))).await.unwrap();
    }

    pub(super) async fn fail(&self) {
        self.consume(&message(), Verdict::Final(Outcome::failure("declined", "no"))).await.unwrap();
    }

    pub(super) async fn retry(&self) {
        self.consume(&message(), Verdict::Retry(WorkError::retry("again"))).await.unwrap_err();
    }

    pub(super) async fn state(&self) -> Option<State> {
        let sighting = self.engine.store().get(self.letter.key.as_ref().unwrap()).await.unwrap();
        sighting.map(|it| it.record.state)
    }

    /// Parks the ordering key of the message, as the consumer does.
    pub(super) async fn park(&self) {
        let key = crate::pipeline::park::parked_scope(&scope()).key("customer-7").unwrap();
        let mark = |_| async { Verdict::Final(Outcome::success("")) };
        self.engine.run_raw(key, Fingerprint::of_bytes(b"parked"), mark).await.unwrap();
    }
}

pub(super) fn letter_of(engine: &Engine, message: &Message) -> DeadLetter {
    let key = engine.key_hash(&key_of(message));
    DeadLetter {
        id: semel_core::DownstreamKey::new(&key, "").to_string(),
        key: Some(key),
        event_id: Some("order-1".to_owned()),
        reason: DeadLetterReason::Failed,
        class: "declined".to_owned(),
        error: "no".to_owned(),
        attempts: 1,
        first_at: SystemTime::now(),
        last_at: SystemTime::now(),
        consumer: "billing".to_owned(),
        source: "memory".to_owned(),
        message: Arc::new(message.clone()),
    }
}
