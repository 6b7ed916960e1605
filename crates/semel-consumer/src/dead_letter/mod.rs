//! Dead letters: messages that will not be processed, kept with the reason.
//!
//! | | |
//! |---|---|
//! | a letter, and why it is one | [`DeadLetter`], [`DeadLetterReason`] |
//! | where letters go | [`DeadLetterSink`], [`DeadLetterQueue`] |
//! | a folder, memory, a table | [`FileDeadLetters`], [`MemoryDeadLetters`], `PgDeadLetters` (feature `postgres`) |
//! | for the sink of a broker | [`DeadLetter::to_message`], [`DeadLetter::to_json`] |
//! | process the event of a letter after all | [`Redrive`], [`MessagePublisher`] |

mod file;
mod format;
mod headers;
#[cfg(feature = "postgres")]
mod postgres;
mod redrive;
pub(crate) mod rfc3339;

use std::{fmt, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use semel_core::{Error, KeyHash, Result};

#[cfg(feature = "postgres")]
pub use self::postgres::{PgDeadLetters, PgDeadLettersBuilder};
pub use self::{
    file::FileDeadLetters,
    redrive::{
        EventRecords, MessagePublisher, REDRIVEN_FROM_HEADER, Redrive, RedriveError,
        RedriveRefusal, Redriven, ReopenedKey,
    },
};
use crate::message::Message;

/// A message that will not be processed, and why. The payload and the headers are untouched.
#[derive(Clone)]
pub struct DeadLetter {
    /// The same for every copy of the event: the downstream key of its key or, for a message without a key, one that
    /// is made from its position. A sink keeps one letter for each id: the last.
    pub id: String,
    /// The key of the event, if it has one. A redrive opens it again.
    pub key: Option<KeyHash>,
    /// The id of the event as the consumer found it.
    pub event_id: Option<String>,
    /// Why the message is here.
    pub reason: DeadLetterReason,
    /// The class of the last error, such as `validation`.
    pub class: String,
    /// What went wrong, for people.
    pub error: String,
    /// Attempts at the event.
    pub attempts: u32,
    /// When the broker accepted the message, or when the consumer first saw it.
    pub first_at: SystemTime,
    /// When the message became a dead letter.
    pub last_at: SystemTime,
    /// The consumer that gave up.
    pub consumer: String,
    /// Where the message came from, such as `nats ORDERS/billing`.
    pub source: String,
    /// The message.
    pub message: Arc<Message>,
}

impl DeadLetter {
    /// True if `other` is a copy of this letter, and not a later or earlier letter of the same event. Times are
    /// compared to the microsecond, which is what sinks keep.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        let version = |letter: &Self| (rfc3339::micros(letter.last_at), letter.attempts);
        self.id == other.id && version(self) == version(other)
    }
}

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// The handler failed for good.
    Failed,
    /// All attempts were used.
    AttemptsExhausted,
    /// The message cannot be an event: it has no id, an id or payload that is too long, or is not what it says it is.
    Invalid,
    /// No handler takes events of this type.
    UnknownType,
    /// The id was used before by an event with another payload.
    Mismatch,
    /// It is not known whether the event took effect; an operator decides.
    Unknown,
    /// An earlier event with the same ordering key is a dead letter, and the key is parked.
    Parked,
}

impl DeadLetterReason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::AttemptsExhausted,
        Self::Invalid,
        Self::UnknownType,
        Self::Mismatch,
        Self::Unknown,
        Self::Parked,
    ];

    /// True if a claim has shown that the key is this event's.
    pub(crate) const fn is_of_a_claim(self) -> bool {
        match self {
            Self::Failed | Self::AttemptsExhausted | Self::Unknown => true,
            Self::Invalid | Self::UnknownType | Self::Mismatch | Self::Parked => false,
        }
    }

    /// The word used in headers, tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::Invalid => "invalid",
            Self::UnknownType => "unknown_type",
            Self::Mismatch => "mismatch",
            Self::Unknown => "unknown",
            Self::Parked => "parked",
        }
    }

    /// The reason with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for DeadLetterReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where dead letters go.
#[async_trait]
pub trait DeadLetterSink: fmt::Debug + Send + Sync + 'static {
    /// Keeps the letter, and returns only after it is durable. It replaces an earlier letter with the same id.
    ///
    /// # Errors
    ///
    /// When the letter may not be kept. The message is then not acknowledged.
    async fn publish(&self, letter: &DeadLetter) -> Result<()>;

    /// Checks the place of the letters, before the first message is received. Keeps no letter: one may still be refused
    /// later, such as for want of space.
    ///
    /// # Errors
    ///
    /// What is wrong, and the fix.
    async fn check(&self) -> Result<()>;

    /// For logs, without credentials.
    fn name(&self) -> String;
}

const _: Option<&dyn DeadLetterSink> = None; // Fails to compile if `DeadLetterSink` stops being object safe.

#[async_trait]
impl<S: DeadLetterSink + ?Sized> DeadLetterSink for Arc<S> {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        (**self).publish(letter).await
    }

    async fn check(&self) -> Result<()> {
        (**self).check().await
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// Dead letters that an operator can read and remove, for `semel dead-letters`.
#[async_trait]
pub trait DeadLetterQueue: DeadLetterSink {
    /// Up to `limit` letters after the one with the id `after`, oldest first.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or when there is no letter `after` any more.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>>;

    /// The letter with this id.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    async fn get(&self, id: &str) -> Result<Option<DeadLetter>>;

    /// Removes this letter, after its message was published again. True if it was there.
    ///
    /// A later letter with the same id stays, see [`DeadLetter::is_copy_of`]: the event may have failed again before
    /// the call arrives. The comparison and the removal are one atomic step.
    ///
    /// # Errors
    ///
    /// When it may still be there.
    async fn remove(&self, letter: &DeadLetter) -> Result<bool>;
}

const _: Option<&dyn DeadLetterQueue> = None; // Fails to compile if `DeadLetterQueue` stops being object safe.

/// The error of a list that was to begin after a letter that is not there.
pub(crate) fn no_letter_to_list_after(id: &str) -> Error {
    Error::invalid(format!(
        "dead letters: there is no letter {id:?} to list after; list again from the start"
    ))
}

/// Without event id, error and message, which stay out of logs.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("id", &self.id)
            .field("reason", &self.reason)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// Dead letters in memory, for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryDeadLetters(Arc<Mutex<Vec<DeadLetter>>>);

impl MemoryDeadLetters {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All letters, oldest first.
    #[must_use]
    pub fn letters(&self) -> Vec<DeadLetter> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl DeadLetterSink for MemoryDeadLetters {
    async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let mut letters = self.0.lock();
        letters.retain(|it| it.id != letter.id);
        letters.push(letter.clone());
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

#[async_trait]
impl DeadLetterQueue for MemoryDeadLetters {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<DeadLetter>> {
        let letters = self.0.lock();
        let start = match after {
            None => 0,
            Some(after) => {
                let position = letters.iter().position(|it| it.id == after);
                1 + position.ok_or_else(|| no_letter_to_list_after(after))?
            }
        };
        Ok(letters.iter().skip(start).take(limit).cloned().collect())
    }

    async fn get(&self, id: &str) -> Result<Option<DeadLetter>> {
        Ok(self.0.lock().iter().find(|it| it.id == id).cloned())
    }

    async fn remove(&self, letter: &DeadLetter) -> Result<bool> {
        let mut letters = self.0.lock();
        let before = letters.len();
        letters.retain(|it| !it.is_copy_of(letter));
        Ok(letters.len() < before)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{format::tests::letter, *};

    #[tokio::test]
    async fn memory_keeps_the_last_letter_of_an_event() {
        let letters = MemoryDeadLetters::new();
        let first = letter();
        let second =
            DeadLetter { last_at: first.last_at + Duration::from_secs(1), ..first.clone() };
        letters.publish(&first).await.unwrap();
        letters.publish(&second).await.unwrap();
        assert_eq!(letters.list(None, 10).await.unwrap().len(), 1);
        assert!(!letters.remove(&first).await.unwrap(), "the later letter stays");
        assert!(letters.remove(&second).await.unwrap());
        let error = letters.list(Some(&first.id), 10).await.unwrap_err();
        assert!(error.to_string().contains("list again"), "{error}");
    }

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        for reason in DeadLetterReason::ALL {
            assert_eq!(DeadLetterReason::from_word(reason.as_str()), Some(reason));
        }
    }

    #[test]
    fn a_letter_is_not_shown_in_logs() {
        let shown = format!("{:?}", letter());
        assert!(!shown.contains("canary") && !shown.contains("order"), "{shown}");
    }
}
