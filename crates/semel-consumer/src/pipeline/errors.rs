//! The error handling around a handler: a failure that no attempt will change becomes a dead letter before it is
//! recorded.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Instant, SystemTime},
};

use futures_util::FutureExt;
use semel_core::{Classifier, ErrorClass, OnLostOwner, Outcome, Result, Verdict, WorkError};
use tower_layer::Layer;

use super::validation::dead_letter_id;
use crate::{
    dead_letter::{DeadLetter, DeadLetterReason, DeadLetterSink},
    handler::{EventContext, Handler},
    message::Message,
    pipeline::backoff::Backoff,
    request::{EventRequest, Refusal},
    telemetry::{self, ConsumerMetrics},
};

/// The kind of the recorded failure of an event that used all of its attempts.
pub const ATTEMPTS_EXHAUSTED: &str = "attempts_exhausted";

/// How often a dead letter is published before the attempt ends as one that may be repeated.
const PUBLISH_ATTEMPTS: u32 = 5;

/// Classifies the errors of a handler, and publishes dead letters.
#[derive(Clone)]
pub struct ErrorHandlingLayer {
    pub(crate) dead_letters: DeadLetters,
    pub(crate) classifier: Arc<dyn Classifier>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) on_lost_owner: OnLostOwner,
    pub(crate) metrics: ConsumerMetrics,
}

impl std::fmt::Debug for ErrorHandlingLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErrorHandlingLayer")
            .field("dead_letters", &self.dead_letters)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

impl<H> Layer<H> for ErrorHandlingLayer {
    type Service = ErrorHandling<H>;

    fn layer(&self, handler: H) -> ErrorHandling<H> {
        self.layer_shared(Arc::new(handler))
    }
}

impl ErrorHandlingLayer {
    pub(crate) fn layer_shared<H>(&self, handler: Arc<H>) -> ErrorHandling<H> {
        ErrorHandling { handler, settings: Arc::new(self.clone()) }
    }
}

/// Made by [`ErrorHandlingLayer`].
#[derive(Debug)]
pub struct ErrorHandling<H> {
    handler: Arc<H>,
    settings: Arc<ErrorHandlingLayer>,
}

impl<H> Clone for ErrorHandling<H> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), settings: self.settings.clone() }
    }
}

impl<H> ErrorHandling<H> {
    pub(crate) fn max_attempts(&self) -> Option<u32> {
        self.settings.max_attempts
    }

    /// Runs the handler once.
    pub(crate) async fn attempt<Tx: Send>(
        &self,
        tx: &mut Tx,
        request: &EventRequest,
        context: EventContext,
    ) -> Verdict
    where
        H: Handler<Tx>,
    {
        self.attempt_unless(tx, request, context, |_| false).await
    }

    /// Runs the handler once. An error for which `repeats` is true is no failed attempt: an inner layer repeats it.
    pub(crate) async fn attempt_unless<Tx: Send>(
        &self,
        tx: &mut Tx,
        request: &EventRequest,
        context: EventContext,
        repeats: fn(&WorkError) -> bool,
    ) -> Verdict
    where
        H: Handler<Tx>,
    {
        let (attempt, started) = (context.attempt(), Instant::now());
        let handling = self.handler.handle(tx, request.event.clone(), context);
        let result = AssertUnwindSafe(handling).catch_unwind().await;
        self.settings.metrics.handled(started.elapsed());
        let error = match result {
            Ok(Ok(outcome)) => return Verdict::Final(outcome),
            Ok(Err(error)) if repeats(&error) => return Verdict::Retry(error),
            Ok(Err(error)) => error,
            // The panic's payload may quote the event, so it is not kept.
            Err(_) => WorkError::indeterminate("the handler panicked").class(ErrorClass::Panic),
        };
        let verdict = Verdict::of_error(error, &*self.settings.classifier);
        self.settings.log_failure(request, &verdict, attempt);
        self.settings.after_failure(request, verdict, attempt).await
    }
}

impl ErrorHandlingLayer {
    /// Logs a failure that may be repeated. A failure for good is logged with its dead letter.
    fn log_failure(&self, request: &EventRequest, verdict: &Verdict, attempt: u32) {
        let error = match verdict {
            Verdict::Final(_) => return,
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                error
            }
        };
        let (key, position) = (&request.key_hash, &request.event.message.position);
        let error = error.error().to_string();
        let error = self.dead_letters.shown(&error);
        tracing::warn!(%key, attempt, position, error, "attempt failed");
    }

    async fn after_failure(
        &self,
        request: &EventRequest,
        verdict: Verdict,
        attempt: u32,
    ) -> Verdict {
        let is_last = self.max_attempts.is_some_and(|max| attempt >= max);
        let (reason, outcome) = match verdict {
            Verdict::Final(outcome) => (DeadLetterReason::Failed, outcome),
            Verdict::NoEffect(error) if is_last => {
                (DeadLetterReason::AttemptsExhausted, exhausted(&error))
            }
            // Under hold, an effect that is possible is left to an operator.
            Verdict::Retry(error) | Verdict::Indeterminate(error)
                if is_last && self.on_lost_owner == OnLostOwner::Rerun =>
            {
                (DeadLetterReason::AttemptsExhausted, exhausted(&error))
            }
            verdict => return verdict,
        };
        let Some(failure) = outcome.as_failure() else { return Verdict::Final(outcome) };
        let refusal = Refusal {
            attempts: attempt,
            ..request.refusal(reason, ErrorClass::BusinessRule, failure.to_string())
        };
        let kind = failure.kind.clone();
        let letter = self.dead_letters.letter(&request.event.message, &refusal, Some(kind));
        match self.dead_letters.publish(&letter).await {
            Ok(()) => Verdict::Final(outcome),
            Err(error) => Verdict::Retry(WorkError::retry(error).class(ErrorClass::Transient)),
        }
    }
}

fn exhausted(error: &WorkError) -> Outcome {
    Outcome::failure(ATTEMPTS_EXHAUSTED, error.error().to_string())
}

/// Makes dead letters, and publishes them.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetters {
    /// `None`: the user has chosen to drop them.
    pub(crate) sink: Option<Arc<dyn DeadLetterSink>>,
    pub(crate) consumer: Arc<str>,
    pub(crate) source: Arc<str>,
    /// Whether the texts of errors are logged.
    pub(crate) logs_errors: bool,
}

impl DeadLetters {
    pub(crate) fn letter(
        &self,
        message: &Arc<Message>,
        refusal: &Refusal,
        class: Option<String>,
    ) -> DeadLetter {
        let now = SystemTime::now();
        // Before a claim it is not known whether an earlier event had this key and another payload: two events must not
        // replace each other's letters.
        let key = refusal.key.filter(|_| refusal.reason.is_of_a_claim());
        DeadLetter {
            id: dead_letter_id(key.as_ref(), &self.source, message),
            key: refusal.key,
            event_id: refusal.event_id.clone(),
            reason: refusal.reason,
            class: class.unwrap_or_else(|| refusal.class.as_str().to_owned()),
            error: refusal.error.clone(),
            attempts: refusal.attempts,
            first_at: message.published_at.unwrap_or(now),
            last_at: now,
            consumer: self.consumer.to_string(),
            source: self.source.to_string(),
            message: message.clone(),
        }
    }

    /// Publishes a letter, and tries again for a few seconds. Meanwhile lease and deadline are extended.
    pub(crate) async fn publish(&self, letter: &DeadLetter) -> Result<()> {
        let (id, reason, position) = (&letter.id, letter.reason, &letter.message.position);
        if let Some(sink) = &self.sink {
            self.publish_to(&**sink, letter).await?;
        }
        metrics::counter!(telemetry::name::DEAD_LETTERS, "reason" => reason.as_str()).increment(1);
        let (class, attempts, error) = (&letter.class, letter.attempts, self.shown(&letter.error));
        tracing::error!(%id, %reason, class, attempts, position, error, "event is a dead letter");
        Ok(())
    }

    fn shown<'a>(&self, error: &'a str) -> &'a str {
        if self.logs_errors { error } else { "[redacted]" }
    }

    async fn publish_to(&self, sink: &dyn DeadLetterSink, letter: &DeadLetter) -> Result<()> {
        let (id, reason, position) = (&letter.id, letter.reason, &letter.message.position);
        let mut backoff = Backoff::SHORT;
        let mut attempt = 1;
        while let Err(error) = sink.publish(letter).await {
            if attempt == PUBLISH_ATTEMPTS {
                tracing::error!(%id, %reason, position, "cannot publish a dead letter: {error}");
                return Err(error);
            }
            tracing::warn!(%id, %reason, "cannot publish a dead letter, trying again: {error}");
            tokio::time::sleep(backoff.next_delay()).await;
            attempt += 1;
        }
        Ok(())
    }
}
