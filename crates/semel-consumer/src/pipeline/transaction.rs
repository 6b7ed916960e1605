//! The transaction stage: the inbox claims the event in the transaction in which the handler writes, and its record
//! commits together with the effect.
//!
//! A success commits. A final failure rolls back to the savepoint after the claim, is recorded, and commits. Everything
//! else rolls back, and the next attempt opens a new transaction.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use semel_core::{Body, Ending, Error, ErrorClass, ErrorKind, Outcome, Result, Verdict, WorkError};
use semel_inbox::{
    AttemptEnd, CountedAttempt, Done, InboxContext, InboxError, InboxEvent, InboxPool, PgInbox,
};
use serde_json::value::{RawValue, to_raw_value};
use tower_layer::Layer;
use tower_service::Service;

use super::{claim::asked_delay, errors::ErrorHandling};
use crate::{
    dead_letter::DeadLetterReason,
    handler::{EventContext, Handler},
    request::{EventRequest, FailedAttempt, ProcessError, Processed, Refusal},
};

/// When a copy comes again whose event is being handled in another transaction.
const BUSY: Duration = Duration::from_secs(1);
/// The type of an event that has none. The inbox requires one.
const NO_TYPE: &str = "event";
const MAX_TYPE_CHARS: usize = 100;

/// Claims each event in the inbox, and runs the handler in the same transaction.
pub struct TransactionLayer<P> {
    inbox: PgInbox<P>,
}

impl<P: InboxPool> TransactionLayer<P> {
    /// Claims in `inbox`.
    #[must_use]
    pub const fn new(inbox: PgInbox<P>) -> Self {
        Self { inbox }
    }
}

impl<P> fmt::Debug for TransactionLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionLayer")
    }
}

impl<P: InboxPool + Clone, H> Layer<ErrorHandling<H>> for TransactionLayer<P> {
    type Service = TransactionStage<P, H>;

    fn layer(&self, inner: ErrorHandling<H>) -> TransactionStage<P, H> {
        TransactionStage { inner, inbox: self.inbox.clone() }
    }
}

/// Made by [`TransactionLayer`].
pub struct TransactionStage<P, H> {
    inner: ErrorHandling<H>,
    inbox: PgInbox<P>,
}

impl<P: Clone, H> Clone for TransactionStage<P, H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), inbox: self.inbox.clone() }
    }
}

impl<P, H> fmt::Debug for TransactionStage<P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionStage")
    }
}

impl<P, H> Service<EventRequest> for TransactionStage<P, H>
where
    P: InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    type Response = Processed;
    type Error = ProcessError;
    type Future = BoxFuture<'static, Result<Processed, ProcessError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProcessError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: EventRequest) -> Self::Future {
        let Self { inner, inbox } = self.clone();
        Box::pin(async move {
            match admit(&inbox, &request).await {
                Ok(event) => process_alone(&inbox, &inner, request, &event).await,
                Err(result) => result,
            }
        })
    }
}

/// The event as the inbox knows it or, if it must not run, its result.
async fn admit<P: InboxPool>(
    inbox: &PgInbox<P>,
    request: &EventRequest,
) -> Result<InboxEvent, Result<Processed, ProcessError>> {
    let event = inbox_event(request, &request.id).map_err(|error| {
        let refusal =
            request.refusal(DeadLetterReason::Invalid, ErrorClass::Validation, error.to_string());
        Err(ProcessError::Refused(refusal))
    })?;
    match request.event.message.given_up {
        true => Err(unless_recorded(inbox, &event, request, request.given_up()).await),
        false => Ok(event),
    }
}

/// Attempts an event in a transaction of its own.
async fn process_alone<P, H>(
    inbox: &PgInbox<P>,
    inner: &ErrorHandling<H>,
    mut request: EventRequest,
    event: &InboxEvent,
) -> Result<Processed, ProcessError>
where
    P: InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    // The broker also counts deliveries that were given back before the handler ran, or none at all. Beyond the limit,
    // and without a count, attempts are counted in the database, before the transaction: a message that kills the
    // process leaves no other trace.
    let limit = inner.max_attempts().filter(|max| request.has_to_be_counted(*max));
    let Some(max) = limit else { return attempt_alone(inbox, inner, &request, event).await };
    let counted = async { inbox.count_attempt(&attempts_event(&request)?).await };
    let counted = counted.await.map_err(ProcessError::Store)?;
    request.counted_attempt = counted.as_ref().map(CountedAttempt::number);
    // A table that cannot count leaves the limit to the broker's count.
    let is_exhausted = match request.counted_attempt {
        Some(attempt) => attempt > max,
        None => request.event.message.deliveries.is_some(),
    };
    let result = match is_exhausted {
        true => unless_recorded(inbox, event, &request, request.attempts_exhausted(max)).await,
        false => attempt_alone(inbox, inner, &request, event).await,
    };
    let ended = counted.map(|attempt| (attempt, attempt_end(&result)));
    end_attempts(inbox, ended.as_slice()).await;
    result
}

async fn attempt_alone<P, H>(
    inbox: &PgInbox<P>,
    inner: &ErrorHandling<H>,
    request: &EventRequest,
    event: &InboxEvent,
) -> Result<Processed, ProcessError>
where
    P: InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    let (inner, attempted) = (inner.clone(), request.clone());
    let done = inbox
        .process(event, async move |tx: &mut P::Tx, context: &InboxContext| {
            inner.in_transaction(tx, attempted.clone(), context.clone()).await
        })
        .await;
    after_attempt(inbox, event, done, request).await
}

impl<H> ErrorHandling<H> {
    /// One attempt, as the inbox wants it: any error rolls back.
    async fn in_transaction<Tx: Send>(
        &self,
        tx: &mut Tx,
        request: EventRequest,
        context: InboxContext,
    ) -> Result<Box<RawValue>, WorkError>
    where
        H: Handler<Tx>,
    {
        let context = EventContext::in_transaction(context, request.attempt());
        match self.attempt_unless(tx, &request, context, is_conflict).await {
            Verdict::Final(outcome) => match outcome.as_failure() {
                Some(failure) => Err(WorkError::failure(&*failure.kind, &*failure.message)),
                None => Ok(as_json(&outcome)),
            },
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                Err(error)
            }
        }
    }
}

/// Refuses an event, unless it has an outcome or a copy of it runs. A claim that is rolled back finds out.
async fn unless_recorded<P: InboxPool>(
    inbox: &PgInbox<P>,
    event: &InboxEvent,
    request: &EventRequest,
    refusal: Refusal,
) -> Result<Processed, ProcessError> {
    let nothing = async |_: &mut P::Tx, _: &InboxContext| -> Result<Box<RawValue>, WorkError> {
        Err(WorkError::no_effect("the event is refused"))
    };
    match after_process(inbox.process(event, nothing).await, request) {
        Err(ProcessError::Retry(_)) => Err(ProcessError::Refused(refusal)),
        result => result,
    }
}

/// What the result of an attempt means.
async fn after_attempt<P: InboxPool>(
    inbox: &PgInbox<P>,
    event: &InboxEvent,
    done: Result<Done<Box<RawValue>>, InboxError>,
    request: &EventRequest,
) -> Result<Processed, ProcessError> {
    if reopened(inbox, event, &done, request).await? {
        return Err(REOPENED);
    }
    after_process(done, request)
}

/// What the result of an attempt means for its count.
const fn attempt_end(result: &Result<Processed, ProcessError>) -> AttemptEnd {
    match result {
        Ok(_) => AttemptEnd::Recorded,
        Err(ProcessError::Retry(_)) => AttemptEnd::Failed,
        Err(
            ProcessError::Busy { .. }
            | ProcessError::Store(_)
            | ProcessError::Refused(_)
            | ProcessError::CircuitOpen
            | ProcessError::Stopping
            | ProcessError::Skipped
            | ProcessError::UnknownType { .. },
        ) => AttemptEnd::NotBegun,
    }
}

async fn end_attempts<P: InboxPool>(inbox: &PgInbox<P>, ended: &[(CountedAttempt, AttemptEnd)]) {
    if let Err(error) = inbox.end_attempts(ended).await {
        tracing::debug!("the count of attempts stays as it was: {error}");
    }
}

/// The event of a dead letter that an operator published again has its recorded failure deleted, so that it runs.
const REOPENED: ProcessError = ProcessError::Busy { retry_after: Duration::ZERO };

async fn reopened<P: InboxPool>(
    inbox: &PgInbox<P>,
    event: &InboxEvent,
    done: &Result<Done<Box<RawValue>>, InboxError>,
    request: &EventRequest,
) -> Result<bool, ProcessError> {
    let has_failed = matches!(done, Err(InboxError::Failed { replayed: true, .. }));
    if !has_failed || !request.event.message.is_redriven() {
        return Ok(false);
    }
    inbox.forget_failure(event).await.map_err(ProcessError::Store)
}

/// The inbox repeats the handler after a conflict: that is no attempt, and never the last one.
fn is_conflict(error: &WorkError) -> bool {
    semel_inbox::is_conflict(error)
}

/// The event whose attempts the inbox counts for this message.
fn attempts_event(request: &EventRequest) -> Result<InboxEvent> {
    inbox_event(request, request.attempts_id())
}

fn inbox_event(request: &EventRequest, id: &str) -> Result<InboxEvent> {
    let event = &request.event;
    let of_type = [event.event_type(), &event.message.topic, NO_TYPE];
    let event_type = of_type.into_iter().find(|it| !it.is_empty()).unwrap_or(NO_TYPE);
    let event_type: String = event_type.chars().take(MAX_TYPE_CHARS).collect();
    let inbox_event = InboxEvent::new(id, event_type)?;
    // A redrive adds the header to an event that has no time of its own.
    match event.attributes.time.as_deref().or_else(|| event.message.header("event_time")) {
        Some(time) => inbox_event.occurred_on(time),
        None => Ok(inbox_event),
    }
}

/// The inbox records JSON. A body that is not JSON is recorded as a JSON string.
fn as_json(outcome: &Outcome) -> Box<RawValue> {
    let null = || RawValue::from_string("null".to_owned()).expect("null is JSON");
    let Body::Kept(body) = outcome.body() else { return null() };
    let text = String::from_utf8_lossy(body);
    match RawValue::from_string(text.into_owned()) {
        Ok(raw) => raw,
        Err(_) => to_raw_value(&String::from_utf8_lossy(body)).unwrap_or_else(|_| null()),
    }
}

fn recorded(value: &RawValue) -> Option<Arc<Outcome>> {
    Outcome::json(&value).ok().map(Arc::new)
}

/// What a result of the inbox means for the message of `request`.
fn after_process(
    done: Result<Done<Box<RawValue>>, InboxError>,
    request: &EventRequest,
) -> Result<Processed, ProcessError> {
    let (key, attempt) = (request.key_hash, request.attempt());
    let processed = |outcome, duplicate| Processed { key, outcome, duplicate, attempt };
    match done {
        Ok(Done::Now(value)) => Ok(processed(recorded(&value), false)),
        Ok(Done::Duplicate(value)) => Ok(processed(value.and_then(|value| recorded(&value)), true)),
        Ok(Done::Busy) => Err(ProcessError::Busy { retry_after: BUSY }),
        Err(InboxError::Failed { failure, replayed }) => {
            let outcome = Outcome::failure(failure.kind, failure.message);
            Ok(processed(Some(Arc::new(outcome)), replayed))
        }
        Err(InboxError::Retry(error)) => Err(failed(&error, request)),
        // The table cannot hold the event, or the handler hid an error. Each attempt is counted.
        Err(InboxError::Store(error)) if error.kind() == ErrorKind::Invalid => {
            Err(failed(&WorkError::from(error).class(ErrorClass::Validation), request))
        }
        Err(InboxError::Store(error)) => Err(ProcessError::Store(error)),
        Err(InboxError::Unreadable(_)) => Ok(processed(None, true)),
        Err(error) => {
            Err(ProcessError::Store(Error::new(ErrorKind::Unavailable, error.to_string())))
        }
    }
}

fn failed(error: &WorkError, request: &EventRequest) -> ProcessError {
    ProcessError::Retry(FailedAttempt {
        class: ErrorClass::Unknown,
        ending: Ending::NoEffect,
        attempt: request.attempt(),
        retry_after: asked_delay(error.error()),
        error: error.error().to_string(),
    })
}

/// Runs a batch of events: in one transaction, each under a savepoint of its own.
///
/// An event with an earlier attempt of which no result is known runs in a transaction of its own, after the others: a
/// process may have died of it. Its attempt is counted immediately before. So an event that kills the process raises no
/// count but its own, and becomes a dead letter alone.
pub(crate) async fn process_batch<P, H>(
    inbox: PgInbox<P>,
    inner: ErrorHandling<H>,
    mut requests: Vec<EventRequest>,
) -> Vec<Result<Processed, ProcessError>>
where
    P: InboxPool + Clone + 'static,
    P::Tx: 'static,
    H: Handler<P::Tx>,
{
    let mut batch = Batch { results: requests.iter().map(|_| None).collect(), ..Batch::default() };
    for (at, request) in requests.iter().enumerate() {
        match admit(&inbox, request).await {
            Ok(event) => batch.admitted.push((at, event)),
            Err(result) => batch.results[at] = Some(result),
        }
    }
    let attempts = batch.begin_attempts(&inbox, &mut requests, inner.max_attempts()).await;
    batch.process_together(&inbox, &inner, &requests).await;
    let ended = attempts
        .into_iter()
        .filter_map(|(at, attempt)| Some((attempt, attempt_end(batch.results[at].as_ref()?))));
    end_attempts(&inbox, &ended.collect::<Vec<_>>()).await;
    batch.process_each_alone(&inbox, &inner, &requests).await;
    let unknown = || Err(ProcessError::Busy { retry_after: BUSY });
    batch.results.into_iter().map(|result| result.unwrap_or_else(unknown)).collect()
}

/// The events of a batch, each with the index of its request.
#[derive(Default)]
struct Batch {
    results: Vec<Option<Result<Processed, ProcessError>>>,
    /// Events that may run.
    admitted: Vec<(usize, InboxEvent)>,
    /// Those of them that share a transaction.
    together: Vec<(usize, InboxEvent)>,
    /// Those with a transaction each.
    alone: Vec<(usize, InboxEvent)>,
}

impl Batch {
    /// Divides the admitted events, and notes the attempts that begin together and have to be counted: one for all
    /// copies of an event.
    async fn begin_attempts<P: InboxPool>(
        &mut self,
        inbox: &PgInbox<P>,
        requests: &mut [EventRequest],
        max_attempts: Option<u32>,
    ) -> Vec<(usize, CountedAttempt)> {
        let (mut counted, mut events) = (Vec::new(), Vec::new());
        for (at, event) in std::mem::take(&mut self.admitted) {
            let request = &requests[at];
            let has_to_be_counted = max_attempts.is_some_and(|max| request.has_to_be_counted(max));
            if !has_to_be_counted {
                self.together.push((at, event));
            } else if request.event.message.deliveries.is_some() {
                self.alone.push((at, event));
            } else if let Ok(attempts_event) = attempts_event(request) {
                counted.push((at, event));
                events.push(attempts_event);
            }
        }
        let begun = match inbox.begin_together(&events).await {
            Ok(begun) => begun,
            Err(error) => {
                for (at, _) in counted {
                    self.results[at] = Some(Err(ProcessError::Store(error.clone())));
                }
                return Vec::new();
            }
        };
        let (mut attempts, mut first_copies) = (Vec::new(), HashSet::new());
        for (((at, event), attempts_event), attempt) in counted.into_iter().zip(events).zip(begun) {
            let Some(attempt) = attempt else {
                self.alone.push((at, event));
                continue;
            };
            requests[at].counted_attempt = Some(attempt.number());
            if first_copies.insert(attempts_event) {
                attempts.push((at, attempt));
            }
            self.together.push((at, event));
        }
        attempts
    }

    async fn process_together<P, H>(
        &mut self,
        inbox: &PgInbox<P>,
        inner: &ErrorHandling<H>,
        requests: &[EventRequest],
    ) where
        P: InboxPool + Clone + 'static,
        P::Tx: 'static,
        H: Handler<P::Tx>,
    {
        let events: Vec<_> = self.together.iter().map(|(_, event)| event.clone()).collect();
        if events.is_empty() {
            return;
        }
        let mut by_event = HashMap::new();
        for (at, event) in &self.together {
            // Of two copies in a batch, the inbox runs the first.
            by_event.entry(event.clone()).or_insert_with(|| requests[*at].clone());
        }
        let (by_event, inner) = (Arc::new(by_event), inner.clone());
        let done = inbox
            .process_each(
                &events,
                async move |tx: &mut P::Tx, event: &InboxEvent, context: &InboxContext| {
                    let request = by_event.get(event).cloned();
                    let lost = || WorkError::retry("the batch lost an event");
                    inner.in_transaction(tx, request.ok_or_else(lost)?, context.clone()).await
                },
            )
            .await;
        let done = done.unwrap_or_else(|error| {
            let what = Error::new(ErrorKind::Unavailable, format!("the batch failed: {error}"));
            events.iter().map(|_| Err(InboxError::Store(what.clone()))).collect()
        });
        for ((at, event), done) in self.together.iter().zip(done) {
            self.results[*at] = Some(after_attempt(inbox, event, done, &requests[*at]).await);
        }
    }

    /// One after the other, because the process may die of each.
    async fn process_each_alone<P, H>(
        &mut self,
        inbox: &PgInbox<P>,
        inner: &ErrorHandling<H>,
        requests: &[EventRequest],
    ) where
        P: InboxPool + Clone + 'static,
        P::Tx: 'static,
        H: Handler<P::Tx>,
    {
        let mut failed = HashSet::new();
        for (at, event) in &self.alone {
            // A copy of an event that has just failed is no reason to try it again at once.
            let result = match failed.contains(event) {
                true => Err(ProcessError::Busy { retry_after: BUSY }),
                false => process_alone(inbox, inner, requests[*at].clone(), event).await,
            };
            if matches!(result, Err(ProcessError::Retry(_))) {
                failed.insert(event.clone());
            }
            self.results[*at] = Some(result);
        }
    }
}
