//! The transaction stage: the inbox claims the event in the transaction in which the handler writes, and its record
//! commits together with the effect.
//!
//! A success commits. A final failure rolls back to the savepoint after the claim, is recorded, and commits. Everything
//! else rolls back, and the next attempt opens a new transaction.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use semel_core::{Body, Ending, Error, ErrorClass, ErrorKind, Outcome, Result, Verdict, WorkError};
use semel_inbox::{Done, InboxContext, InboxError, InboxEvent, InboxPool, PgInbox};
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
/// Attempts at events of a batch that are counted at the same time.
const COUNTED_AT_ONCE: usize = 8;

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

    fn call(&mut self, mut request: EventRequest) -> Self::Future {
        let Self { inner, inbox } = self.clone();
        Box::pin(async move {
            let event = match inner.admit(&inbox, &mut request).await {
                Ok(event) => event,
                Err(result) => return result,
            };
            let attempted = request.clone();
            let done = inbox
                .process(&event, async move |tx: &mut P::Tx, context: &InboxContext| {
                    inner.in_transaction(tx, attempted.clone(), context.clone()).await
                })
                .await;
            let result = after_attempt(&inbox, &event, done, &request).await;
            discount(&inbox, &[(&request, &result)]).await;
            result
        })
    }
}

impl<H> ErrorHandling<H> {
    /// The event as the inbox knows it or, if it must not run, its result.
    async fn admit<P: InboxPool>(
        &self,
        inbox: &PgInbox<P>,
        request: &mut EventRequest,
    ) -> Result<InboxEvent, Result<Processed, ProcessError>> {
        let event = inbox_event(request, &request.id).map_err(|error| {
            let refusal = request.refusal(
                DeadLetterReason::Invalid,
                ErrorClass::Validation,
                error.to_string(),
            );
            Err(ProcessError::Refused(refusal))
        })?;
        if request.event.message.given_up {
            return Err(unless_recorded(inbox, &event, request, request.given_up()).await);
        }
        // The broker also counts deliveries that were given back before the handler ran, or none at all. Beyond the limit,
        // and without a count, attempts are counted in the database, before the transaction: a message that kills the
        // process leaves no other trace.
        if let Some(max) = self.max_attempts().filter(|max| request.has_to_be_counted(*max)) {
            let counted = async { inbox.count_attempt(&attempts_event(request)?).await };
            let counted = counted.await.map_err(|error| Err(ProcessError::Store(error)))?;
            request.counted_attempt = counted;
            if request.counted_attempt.is_none_or(|attempt| attempt > max) {
                let refusal = request.attempts_exhausted(max);
                return Err(unless_recorded(inbox, &event, request, refusal).await);
            }
        }
        Ok(event)
    }

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

/// Takes back counted attempts that did not begin, and those of events that are recorded now.
async fn discount<P: InboxPool>(inbox: &PgInbox<P>, results: &[AttemptResult<'_>]) {
    let counted = results.iter().filter_map(|(request, result)| {
        let matters =
            !matches!(result, Ok(_) | Err(ProcessError::Busy { .. } | ProcessError::Store(_)));
        let attempt = request.counted_attempt.filter(|_| !matters)?;
        Some((attempts_event(request).ok()?, attempt))
    });
    if let Err(error) = inbox.discount_attempts(&counted.collect::<Vec<_>>()).await {
        tracing::debug!("attempts stay counted: {error}");
    }
}

/// An attempt at an event, and its result.
type AttemptResult<'a> = (&'a EventRequest, &'a Result<Processed, ProcessError>);

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

/// Runs a batch of events in one transaction: each under a savepoint of its own.
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
    let admitting: Vec<_> = requests.iter_mut().map(|it| inner.admit(&inbox, it)).collect();
    let admitted: Vec<_> = stream::iter(admitting).buffered(COUNTED_AT_ONCE).collect().await;
    let events: Vec<_> = admitted.iter().filter_map(|event| event.as_ref().ok().cloned()).collect();
    let mut by_event = HashMap::new();
    for (event, request) in admitted.iter().zip(&requests) {
        if let Ok(event) = event {
            // Of two copies in a batch, the inbox runs the first.
            by_event.entry(event.clone()).or_insert_with(|| request.clone());
        }
    }
    let by_event = Arc::new(by_event);
    let done = inbox
        .process_each(
            &events,
            async move |tx: &mut P::Tx, event: &InboxEvent, context: &InboxContext| {
                let request = by_event.get(event).cloned();
                let request = request.ok_or_else(|| WorkError::retry("the batch lost an event"))?;
                inner.in_transaction(tx, request, context.clone()).await
            },
        )
        .await;
    let mut done: std::vec::IntoIter<_> = match done {
        Ok(results) => results.into_iter(),
        Err(error) => {
            let what = Error::new(ErrorKind::Unavailable, format!("the batch failed: {error}"));
            let all = events.iter().map(|_| Err(InboxError::Store(what.clone())));
            all.collect::<Vec<_>>().into_iter()
        }
    };
    let (mut results, mut attempted) = (Vec::with_capacity(requests.len()), Vec::new());
    for (event, request) in admitted.into_iter().zip(&requests) {
        results.push(match event {
            Err(result) => result,
            Ok(event) => {
                let result = match done.next() {
                    None => Err(ProcessError::Busy { retry_after: BUSY }),
                    Some(done) => after_attempt(&inbox, &event, done, request).await,
                };
                attempted.push((request, results.len()));
                result
            }
        });
    }
    let attempted: Vec<_> =
        attempted.into_iter().map(|(request, at)| (request, &results[at])).collect();
    discount(&inbox, &attempted).await;
    results
}
