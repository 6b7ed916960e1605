//! What goes into the stages of the pipeline, and what comes out.

use std::{borrow::Cow, error::Error as StdError, fmt, sync::Arc, time::Duration};

use semel_core::{Ending, Error, ErrorClass, Fingerprint, Key, KeyHash, Outcome};

use crate::{dead_letter::DeadLetterReason, event::Event};

/// An event on its way through the pipeline. Clones are cheap.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// The event.
    pub event: Event,
    /// Its id, as the key strategy found it.
    pub id: Arc<str>,
    /// Attempts that failed in this process, for this delivery.
    pub failed_attempts: u32,
    /// Which attempt this is, if it was counted. The broker's count of deliveries is an upper limit: it also counts
    /// deliveries that were given back, or lost with a process, before the handler ran.
    pub counted_attempt: Option<u32>,
    /// Its key.
    pub key: Key,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// The fingerprint of its payload.
    pub fingerprint: Fingerprint,
}

impl EventRequest {
    /// Which attempt this is, where nothing but the broker counts attempts.
    pub(crate) fn attempt(&self) -> u32 {
        let deliveries = || self.deliveries();
        self.counted_attempt.unwrap_or_else(deliveries)
    }

    /// True if the broker's count of deliveries does not limit attempts to `max`: the broker does not know it, or it is
    /// beyond the limit and may have counted deliveries that were no attempts.
    pub(crate) fn has_to_be_counted(&self, max: u32) -> bool {
        self.event.message.deliveries.is_none() || self.attempt() > max
    }

    /// What its attempts are counted under. A message that an operator has published again has attempts of its own.
    pub(crate) fn attempts_id(&self) -> &str {
        let message = &self.event.message;
        match message.is_redriven() && !message.position.is_empty() {
            true => &message.position,
            false => &self.id,
        }
    }

    fn deliveries(&self) -> u32 {
        self.event.message.deliveries.unwrap_or(1).saturating_add(self.failed_attempts)
    }

    /// Why this event must not run.
    pub(crate) fn refusal(
        &self,
        reason: DeadLetterReason,
        class: ErrorClass,
        error: impl Into<String>,
    ) -> Refusal {
        Refusal {
            reason,
            class,
            error: error.into(),
            attempts: self.event.message.deliveries.unwrap_or_default(),
            key: Some(self.key_hash),
            event_id: self.event.event_id().map(Cow::into_owned),
        }
    }

    /// The broker delivered this event as often as its own limit allows.
    pub(crate) fn given_up(&self) -> Refusal {
        self.refusal(
            DeadLetterReason::AttemptsExhausted,
            ErrorClass::Unknown,
            "the broker delivered the message as often as its own limit allows, and it was never acknowledged",
        )
    }

    /// This event was tried as often as it may be, and the last attempt ended without a result.
    pub(crate) fn attempts_exhausted(&self, max_attempts: u32) -> Refusal {
        let error =
            format!("the message was delivered more than {max_attempts} times without an outcome");
        self.refusal(DeadLetterReason::AttemptsExhausted, ErrorClass::Unknown, error)
    }
}

/// What a stage that panics is reported as. The text of a panic may quote the event.
pub(crate) const PANICKED: &str = "a stage of the pipeline panicked";

impl Refusal {
    pub(crate) fn of_panic() -> Self {
        Self {
            reason: DeadLetterReason::Invalid,
            class: ErrorClass::Panic,
            error: PANICKED.to_owned(),
            attempts: 0,
            key: None,
            event_id: None,
        }
    }
}

/// An event that has an outcome, and the outcome is durable: acknowledge its message.
#[derive(Clone, Debug)]
pub struct Processed {
    /// The hash of the event's key.
    pub key: KeyHash,
    /// The recorded outcome, success or final failure. `None` if it was not kept.
    pub outcome: Option<Arc<Outcome>>,
    /// True if the handler did not run for this message.
    pub duplicate: bool,
    /// Which attempt produced the outcome; 0 if it is not known.
    pub attempt: u32,
}

/// Why an event has no outcome yet.
#[derive(Clone)]
#[non_exhaustive]
pub enum ProcessError {
    /// The attempt failed and may be repeated.
    Retry(FailedAttempt),
    /// Another copy is being processed, or the outcome of a run is not recorded yet.
    Busy {
        /// When another try makes sense.
        retry_after: Duration,
    },
    /// The circuit breaker is open: no attempt was made.
    CircuitOpen,
    /// The consumer shuts down: no attempt was made.
    Stopping,
    /// The store or the database failed: no attempt was made, or its outcome is not known to be recorded.
    Store(Error),
    /// The event must not run: a dead letter.
    Refused(Refusal),
    /// No handler takes this type of event, and the policy is to skip it.
    Skipped,
    /// No handler takes this type of event, and the policy is to stop the consumer.
    UnknownType {
        /// The type.
        event_type: String,
    },
}

/// An attempt that may be repeated.
#[derive(Clone)]
pub struct FailedAttempt {
    /// What kind of error it was.
    pub class: ErrorClass,
    /// What is known about the effect.
    pub ending: Ending,
    /// Which attempt it was.
    pub attempt: u32,
    /// The least time until the next one.
    pub retry_after: Duration,
    /// The text of the handler's error.
    pub error: String,
}

/// Why an event must not run.
#[derive(Clone)]
pub struct Refusal {
    /// The reason.
    pub reason: DeadLetterReason,
    /// The class of the error.
    pub class: ErrorClass,
    /// What is wrong, for people.
    pub error: String,
    /// Attempts so far.
    pub attempts: u32,
    /// The key of the event, if it has one.
    pub key: Option<KeyHash>,
    /// The id of the event, if it has one.
    pub event_id: Option<String>,
}

impl fmt::Debug for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The error's text may quote a payload.
        f.debug_struct("FailedAttempt")
            .field("class", &self.class)
            .field("ending", &self.ending)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessError({self})")
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(failed) => {
                write!(f, "attempt {} failed ({}), try again", failed.attempt, failed.class)
            }
            Self::Busy { retry_after } => {
                write!(f, "another copy runs, try again in {retry_after:?}")
            }
            Self::CircuitOpen => f.write_str("the circuit breaker is open"),
            Self::Stopping => f.write_str("the consumer shuts down"),
            Self::Store(error) => error.fmt(f),
            Self::Refused(refusal) => write!(f, "refused: {}", refusal.reason),
            Self::Skipped => f.write_str("skipped: no handler takes events of this type"),
            Self::UnknownType { .. } => f.write_str("no handler takes events of this type"),
        }
    }
}

impl StdError for ProcessError {}
