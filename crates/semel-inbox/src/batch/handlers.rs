//! Runs the handler of a claimed batch: one call for all events, or one call for each.

use semel_core::WorkError;
use serde::{Serialize, de::DeserializeOwned};

use super::{BatchResults, EventBatch, EventState};
use crate::{
    InboxContext, InboxError, InboxEvent, InboxPool, InboxTx, PgInbox,
    inbox::InboxSettings,
    process::{AttemptError, retry},
    transaction::TxError,
};

const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT semel_event";
/// Checks deferred constraints right after a handler, so that its event gets the error. They stay deferred for the next
/// handler.
const CHECK_CONSTRAINTS: &str =
    "SAVEPOINT semel_look; SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO SAVEPOINT semel_look";
const RELEASE: &str = "RELEASE SAVEPOINT semel_event";

/// Runs the handler of a batch. A trait and not a closure: the compiler cannot prove that the future of such a closure
/// is `Send`.
pub(super) trait BatchHandler<P: InboxPool, T> {
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &EventBatch<'_>,
    ) -> Result<BatchResults<T>, AttemptError>;
}

/// One call for all new events.
pub(super) struct OneCallForAll<F>(pub(super) F);

impl<P: InboxPool, F> BatchHandler<P, ()> for OneCallForAll<F>
where
    F: AsyncFn(&mut P::Tx, &[&InboxEvent]) -> Result<(), WorkError>,
{
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &EventBatch<'_>,
    ) -> Result<BatchResults<()>, AttemptError> {
        let new: Vec<_> = batch.all(EventState::New).map(|at| &batch.events[at]).collect();
        if !new.is_empty() {
            (self.0)(tx, &new).await.map_err(|error| {
                match InboxSettings::is_retryable(&error) {
                    true => retry("the handler's transaction failed with a conflict"),
                    false => AttemptError::Final(InboxError::Retry(error)),
                }
            })?;
        }
        let mut results = BatchResults::default();
        batch.all(EventState::New).for_each(|at| results.succeeded(at, ()));
        results.recorded = inbox.recorded(tx, batch).await?;
        Ok(results)
    }
}

/// One call for each new event, under a savepoint.
pub(super) struct OneCallPerEvent<F>(pub(crate) F);

impl<P: InboxPool, T: Serialize + DeserializeOwned, F> BatchHandler<P, T> for OneCallPerEvent<F>
where
    F: AsyncFn(&mut P::Tx, &InboxEvent, &InboxContext) -> Result<T, WorkError>,
{
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &EventBatch<'_>,
    ) -> Result<BatchResults<T>, AttemptError> {
        let mut results = BatchResults::default();
        // With one new event, the commit itself checks its constraints.
        let is_one = batch.all(EventState::New).nth(1).is_none();
        for at in batch.all(EventState::New) {
            let event = &batch.events[at];
            let context = inbox.settings.context(event)?;
            tx.run("SAVEPOINT semel_event").await?;
            match (self.0)(tx, event, &context).await {
                Ok(value) => match end_event(tx, is_one).await? {
                    None => results.succeeded(at, value),
                    Some(error) => drop(results.open.insert(at, WorkError::retry(error))),
                },
                Err(error) if InboxSettings::is_retryable(&error) => {
                    return Err(retry("a handler's transaction failed with a conflict"));
                }
                Err(error) => {
                    tx.run(&format!("{ROLL_BACK}; {RELEASE}")).await?;
                    results.failed(at, inbox.settings.verdict(error));
                }
            }
        }
        inbox.record_results(tx, batch, &results).await?;
        results.recorded = inbox.recorded(tx, batch).await?;
        Ok(results)
    }
}

/// Ends the savepoint of an event whose handler succeeded. Rolls it back and returns the error if a deferred constraint
/// is violated, or if a statement failed and the handler did not return the error.
async fn end_event(tx: &mut impl InboxTx, is_one: bool) -> Result<Option<TxError>, AttemptError> {
    let look = format!("{CHECK_CONSTRAINTS}; {RELEASE}");
    match tx.run(if is_one { RELEASE } else { &look }).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_refusal() && !error.is_retryable() => {
            // If the check also fails without the event, another event violates the constraint.
            let rolled_back = tx.run(&format!("{ROLL_BACK}; {look}")).await;
            rolled_back.map_err(AttemptError::at_commit)?;
            Ok(Some(error))
        }
        Err(error) => Err(error.into()),
    }
}
