//! Settles deliveries: what each result of the pipeline means for the broker. `docs/events.md` has the table.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use semel_core::{Error, ErrorClass, Outcome, Result};

use super::Runtime;
use crate::{
    dead_letter::DeadLetterReason,
    identity::EVENT_ID_HEADER,
    message::Message,
    request::{ProcessError, Processed, Refusal},
    source::Delivery,
    telemetry::Settled,
};

/// The least and the longest delay of a message whose other copy runs.
const BUSY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

impl Runtime {
    pub(super) async fn settle(&self, delivery: Delivery, result: Result<Processed, ProcessError>) {
        let position = delivery.message.position.clone();
        let (settled, confirmed) = match result {
            Ok(processed) => self.acknowledge(delivery, &processed).await,
            Err(error) => self.after_error(delivery, error).await,
        };
        match confirmed {
            Ok(()) => self.metrics.settled(settled),
            Err(error) => self.unconfirmed(&position, &error),
        }
    }

    pub(super) fn unconfirmed(&self, position: &str, error: &Error) {
        tracing::warn!(
            position,
            "the broker did not confirm, and the message may come again: {error}"
        );
        self.metrics.unconfirmed();
    }

    /// The outcome is durable.
    async fn acknowledge(
        &self,
        delivery: Delivery,
        processed: &Processed,
    ) -> (Settled, Result<()>) {
        if processed.duplicate {
            tracing::info!("Event {} already processed, skipping", processed.key);
        }
        if let Some(outcome) = &processed.outcome
            && let Err(error) = self.reply(&delivery.message, outcome).await
        {
            // The copy that comes again gets the recorded outcome, and replies with it.
            tracing::warn!(position = delivery.message.position, "cannot send the reply: {error}");
            return (Settled::Retry, delivery.nack(self.delay(1)).await);
        }
        match processed.outcome.as_ref().and_then(|outcome| outcome.as_failure()) {
            // The copy of a dead letter whose event is still recorded as failed. The letter may be gone.
            Some(failure) if processed.duplicate && delivery.message.is_redriven() => {
                let refusal = Refusal {
                    reason: DeadLetterReason::Failed,
                    class: ErrorClass::BusinessRule,
                    error: failure.to_string(),
                    attempts: processed.attempt,
                    key: Some(processed.key),
                    event_id: delivery.message.header(EVENT_ID_HEADER).map(str::to_owned),
                };
                self.dead_letter(delivery, &refusal).await
            }
            _ if processed.duplicate => (Settled::Duplicate, delivery.ack().await),
            Some(failure) => (Settled::Failed, delivery.reject(&failure.kind).await),
            None => (Settled::Completed, delivery.ack().await),
        }
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        match message.reply_to {
            Some(_) => self.source.reply(message, outcome).await,
            None => Ok(()),
        }
    }

    async fn after_error(&self, delivery: Delivery, error: ProcessError) -> (Settled, Result<()>) {
        let deliveries = delivery.message.deliveries.unwrap_or(1);
        match error {
            ProcessError::Retry(failed) => {
                let (class, attempt) = (failed.class, failed.attempt);
                let delay = self.delay(attempt).max(failed.retry_after);
                let position = &delivery.message.position;
                tracing::debug!(%class, attempt, position, "the event is tried again in {delay:?}");
                (Settled::Retry, delivery.nack(delay).await)
            }
            ProcessError::Busy { retry_after } => {
                let delay = retry_after.clamp(BUSY.0, BUSY.1);
                (Settled::Busy, delivery.nack(delay).await)
            }
            ProcessError::Stopping => {
                self.returned.fetch_add(1, Relaxed);
                (Settled::Returned, delivery.nack(Duration::ZERO).await)
            }
            ProcessError::CircuitOpen => (Settled::Returned, delivery.nack(self.delay(1)).await),
            ProcessError::Store(error) => {
                let delay = self.delay(deliveries);
                let position = &delivery.message.position;
                tracing::warn!(
                    position,
                    "the outcome is not known to be recorded, trying again in {delay:?}: {error}"
                );
                (Settled::StoreDown, delivery.nack(delay).await)
            }
            ProcessError::Refused(refusal) => self.dead_letter(delivery, &refusal).await,
            ProcessError::Skipped => (Settled::Skipped, delivery.ack().await),
            ProcessError::UnknownType { event_type } => {
                let shown: String = event_type.chars().take(100).collect();
                *self.fatal.lock() = Some(Error::invalid(format!(
                    "no handler takes events of type {shown:?}, and the policy for unknown types is to stop; add a \
                     handler, or choose another policy"
                )));
                self.stopping.send_replace(true);
                (Settled::Returned, delivery.nack(Duration::ZERO).await)
            }
        }
    }

    /// Publishes the dead letter, then settles: the other order could lose the message.
    async fn dead_letter(&self, delivery: Delivery, refusal: &Refusal) -> (Settled, Result<()>) {
        let letter = self.dead_letters.letter(&delivery.message, refusal, None);
        match self.dead_letters.publish(&letter).await {
            Ok(()) => (Settled::DeadLetter, delivery.reject(refusal.reason.as_str()).await),
            Err(_) => {
                let delay = self.delay(delivery.message.deliveries.unwrap_or(1));
                (Settled::StoreDown, delivery.nack(delay).await)
            }
        }
    }

    fn delay(&self, attempt: u32) -> Duration {
        self.backoff.delay(attempt)
    }
}
