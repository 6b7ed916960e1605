//! What is done with a batch that is claimed: one call for all, or one for each.

use semel_core::WorkError;
use serde::{Serialize, de::DeserializeOwned};

use super::{Batch, Ended, Standing};
use crate::{
    InboxContext, InboxError, InboxEvent, InboxPool, InboxTx, PgInbox,
    inbox::About,
    process::{Stop, again},
    transaction::TxError,
};

const BACK: &str = "ROLLBACK TO SAVEPOINT semel_event";
/// What constraints defer to the commit is looked at while it is known whose it is. It stays deferred, for the next
/// handler as well.
const LOOK: &str =
    "SAVEPOINT semel_look; SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO SAVEPOINT semel_look";
const RELEASE: &str = "RELEASE SAVEPOINT semel_event";

/// What is done with a batch. Not a closure: the compiler could not tell that the future of one
/// may be sent to another thread.
pub(super) trait Run<P: InboxPool, T> {
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &Batch<'_>,
    ) -> Result<Ended<T>, Stop>;
}

/// One call for all events that are new.
pub(super) struct Together<F>(pub(crate) F);

impl<P: InboxPool, F> Run<P, ()> for Together<F>
where
    F: AsyncFn(&mut P::Tx, &[&InboxEvent]) -> Result<(), WorkError>,
{
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &Batch<'_>,
    ) -> Result<Ended<()>, Stop> {
        let new: Vec<_> = batch.all(Standing::New).map(|at| &batch.events[at]).collect();
        if !new.is_empty() {
            (self.0)(tx, &new).await.map_err(|error| match About::is_again(&error) {
                true => again("the handler's transaction could not go on"),
                false => Stop::For(InboxError::Retry(error)),
            })?;
        }
        let mut ended = Ended::default();
        batch.all(Standing::New).for_each(|at| ended.succeeded(at, ()));
        ended.recorded = inbox.recorded(tx, batch).await?;
        Ok(ended)
    }
}

/// A call for each event that is new, under a savepoint.
pub(super) struct Each<F>(pub(crate) F);

impl<P: InboxPool, T: Serialize + DeserializeOwned, F> Run<P, T> for Each<F>
where
    F: AsyncFn(&mut P::Tx, &InboxEvent, &InboxContext) -> Result<T, WorkError>,
{
    async fn run(
        &self,
        inbox: &PgInbox<P>,
        tx: &mut P::Tx,
        batch: &Batch<'_>,
    ) -> Result<Ended<T>, Stop> {
        let mut ended = Ended::default();
        // Of one event, the commit says the same.
        let is_one = batch.all(Standing::New).nth(1).is_none();
        for at in batch.all(Standing::New) {
            let event = &batch.events[at];
            let context = inbox.about.context(event)?;
            tx.run("SAVEPOINT semel_event").await?;
            match (self.0)(tx, event, &context).await {
                Ok(value) => match let_go(tx, is_one).await? {
                    None => ended.succeeded(at, value),
                    Some(error) => drop(ended.open.insert(at, WorkError::retry(error))),
                },
                Err(error) if About::is_again(&error) => {
                    return Err(again("a handler's transaction could not go on"));
                }
                Err(error) => {
                    tx.run(&format!("{BACK}; {RELEASE}")).await?;
                    ended.failed(at, inbox.about.verdict(error));
                }
            }
        }
        inbox.settle(tx, batch, &ended).await?;
        ended.recorded = inbox.recorded(tx, batch).await?;
        Ok(ended)
    }
}

/// Ends the part of an event whose handler is content, or undoes it and says why: a deferred constraint forbids it, or a
/// statement failed and the handler did not say so.
async fn let_go(tx: &mut impl InboxTx, is_one: bool) -> Result<Option<TxError>, Stop> {
    let look = format!("{LOOK}; {RELEASE}");
    match tx.run(if is_one { RELEASE } else { &look }).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_refusal() && !error.is_again() => {
            // If it is forbidden without the event too, the event is not to blame.
            let undone = tx.run(&format!("{BACK}; {look}")).await;
            undone.map_err(Stop::at_commit)?;
            Ok(Some(error))
        }
        Err(error) => Err(error.into()),
    }
}
