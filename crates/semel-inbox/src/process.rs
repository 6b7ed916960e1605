//! Processes one event: claim, handler, record and commit in one transaction.

use std::time::Duration;

use semel_core::{Error, ErrorKind, Outcome, Verdict, WorkError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use crate::{
    Done, InboxContext, InboxError, InboxEvent, InboxPool, InboxTransaction, InboxTx, InboxVariant,
    PgInbox,
    claim::{ClaimParameters, ClaimReply},
    inbox::InboxSettings,
    sql::array,
    transaction::{TxError, is_retryable, sqlstate_of},
};

/// A final failure rolls back to the savepoint, which also undoes the claim. The setting proves to the claim statement
/// that it runs in a transaction: outside of one, the claim would commit without the effect.
pub(crate) const BEGIN: &str = "BEGIN; SET LOCAL semel.begun = 'on'; SAVEPOINT semel";
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT semel";

/// Why an attempt failed.
pub(crate) enum AttemptError {
    /// A new transaction may succeed. After a commit whose reply was lost, the new transaction finds out whether it
    /// happened.
    Retry(Error),
    /// The server refuses to commit what a handler wrote, such as a row that violates a deferred constraint.
    CommitRefused(TxError),
    Final(InboxError),
}

impl AttemptError {
    /// The error of a failed commit.
    pub(crate) fn at_commit(error: TxError) -> Self {
        match error.is_refusal() && !error.is_retryable() && !error.is_aborted() {
            true => Self::CommitRefused(error),
            false => error.into(),
        }
    }

    pub(crate) fn into_error(self) -> InboxError {
        self.for_one_event().map_or_else(|error| error, InboxError::Store)
    }

    /// The error to retry after, or the final error of an attempt with one event. A commit that the server refuses is
    /// the handler's error, and cannot be recorded.
    pub(crate) fn for_one_event(self) -> Result<Error, InboxError> {
        match self {
            Self::Retry(error) => Ok(error),
            Self::CommitRefused(error) => Err(InboxError::Retry(WorkError::retry(error))),
            Self::Final(error) => Err(error),
        }
    }
}

impl From<InboxError> for AttemptError {
    fn from(error: InboxError) -> Self {
        Self::Final(error)
    }
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Final(InboxError::Store(error))
    }
}

impl From<TxError> for AttemptError {
    fn from(error: TxError) -> Self {
        if error.is_aborted() {
            return Self::Final(InboxError::Store(Error::invalid(
                "inbox: the handler went on after a statement had failed, and nothing is written; let the handler \
                 return the error, or put the statement between SAVEPOINT and ROLLBACK TO",
            )));
        }
        match error.is_retryable() || error.is_connection() {
            true => Self::Retry(error.into()),
            false => Self::Final(InboxError::Store(error.into())),
        }
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// Runs `handler` for this event if it is new, in a transaction that also records the event. What the handler
    /// writes in it takes effect exactly once, as long as the record of the event is kept.
    ///
    /// The handler may be called again after a deadlock or a lost connection: what it did outside of the
    /// transaction is not undone. If the call is spawned, let the handler own what it uses
    /// (`async move |tx, ctx| …`): the compiler cannot prove yet that a future with such a borrow is `Send`.
    ///
    /// # Errors
    ///
    /// [`InboxError::Failed`] when the handler failed for good, now or for an earlier copy;
    /// [`InboxError::Retry`] and [`InboxError::Store`] when nothing is written and the event should be delivered
    /// again.
    pub async fn process<T, F>(&self, event: &InboxEvent, handler: F) -> Result<Done<T>, InboxError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxContext) -> Result<T, WorkError>,
    {
        let context = self.settings.context(event)?;
        let parameters = self.settings.claim_parameters(event, &context)?;
        let mut round = 0;
        loop {
            round += 1;
            match self.attempt(&parameters, &context, &handler).await {
                Ok(done) => return Ok(done),
                Err(error) => {
                    let error = error.for_one_event()?;
                    if round >= self.settings.options.policy.attempts {
                        return Err(InboxError::Store(error));
                    }
                    pause(round).await;
                }
            }
        }
    }

    async fn attempt<T, F>(
        &self,
        parameters: &ClaimParameters,
        context: &InboxContext,
        handler: &F,
    ) -> Result<Done<T>, AttemptError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxContext) -> Result<T, WorkError>,
    {
        let settings = &self.settings;
        let (mut tx, reply) = match self
            .pool
            .begin(BEGIN, &settings.statements.claim, &parameters.as_array())
            .await
        {
            Ok(begun) => begun,
            Err(error) if error.is_locked() => return Ok(Done::Busy),
            Err(error) if settings.is_partition_missing(&error) => {
                return Err(self.create_partition_for(&parameters.day).await);
            }
            Err(error) => return Err(error.into()),
        };
        match ClaimReply::parse(reply.as_deref())? {
            ClaimReply::New => {}
            ClaimReply::Busy => {
                tx.roll_back().await?;
                return Ok(Done::Busy);
            }
            ClaimReply::Duplicate => {
                let recorded = settings.outcome(&mut tx, parameters.row()).await?;
                tx.roll_back().await?;
                return Ok(duplicate(recorded.as_deref())?);
            }
        }
        match handler(&mut tx, context).await {
            Ok(value) => {
                if let Verdict::Final(outcome) = Verdict::success(&value) {
                    settings.record(&mut tx, &[(parameters.row(), &outcome)]).await?;
                }
                tx.commit().await.map_err(AttemptError::at_commit)?;
                Ok(Done::Now(value))
            }
            Err(error) => Err(self.handle_failure(tx, parameters, error).await),
        }
    }

    /// Rolls back what a failed handler wrote, and records a final failure.
    async fn handle_failure(
        &self,
        mut tx: P::Tx,
        parameters: &ClaimParameters,
        error: WorkError,
    ) -> AttemptError {
        if InboxSettings::is_retryable(&error) {
            let _ = tx.roll_back().await;
            return retry("the handler's transaction failed with a conflict");
        }
        match self.settings.verdict(error) {
            Verdict::Final(outcome) => {
                match self.record_failure(&mut tx, parameters, &outcome).await {
                    Ok(()) => tx.commit().await.map_or_else(AttemptError::from, |()| {
                        AttemptError::Final(failure(&outcome, false))
                    }),
                    Err(error) => error,
                }
            }
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                // If the rollback fails, the connection is lost, and the server rolls back by itself.
                let _ = tx.roll_back().await;
                AttemptError::Final(InboxError::Retry(error))
            }
        }
    }

    async fn record_failure(
        &self,
        tx: &mut P::Tx,
        parameters: &ClaimParameters,
        outcome: &Outcome,
    ) -> Result<(), AttemptError> {
        tx.run(ROLL_BACK).await?;
        let reply = tx.query_text(&self.settings.statements.claim, &parameters.as_array()).await?;
        match ClaimReply::parse(reply.as_deref())? {
            ClaimReply::New => Ok(self.settings.record(tx, &[(parameters.row(), outcome)]).await?),
            // Another copy of the event was faster: the next attempt gets its result.
            ClaimReply::Duplicate | ClaimReply::Busy => {
                Err(retry("another copy of the event was claimed before the failure was recorded"))
            }
        }
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// Deletes the record of an event that failed for good, so that its next copy runs. True if there was one. The record
    /// of a success stays, and so does that of an event that is being handled.
    ///
    /// # Errors
    ///
    /// When the server fails, or the event cannot be in the table.
    pub async fn forget_failure(&self, event: &InboxEvent) -> Result<bool, Error> {
        let settings = &self.settings;
        if !settings.variant.keeps_outcomes() {
            return Ok(false);
        }
        let (id, day) = (settings.id(event)?, settings.day(event)?);
        let (ids, days) = (array([id.as_str()].into_iter()), array([day].into_iter()));
        let parameters = [ids.as_str(), &settings.consumer, &days];
        let reply = self.pool.query_text(&settings.statements.forget_failures, &parameters).await?;
        Ok(reply.as_deref() == Some("1"))
    }
}

/// An error after which the attempt is repeated.
pub(crate) fn retry(what: &str) -> AttemptError {
    AttemptError::Retry(Error::new(ErrorKind::Unavailable, format!("inbox: {what}")))
}

/// The result for a duplicate, from the recorded outcome.
pub(crate) fn duplicate<T: DeserializeOwned>(
    recorded: Option<&Outcome>,
) -> Result<Done<T>, InboxError> {
    let Some(outcome) = recorded else { return Ok(Done::Duplicate(None)) };
    if outcome.as_failure().is_some() {
        return Err(failure(outcome, true));
    }
    outcome.decode().map(|value| Done::Duplicate(Some(value))).map_err(InboxError::Unreadable)
}

pub(crate) fn failure(outcome: &Outcome, replayed: bool) -> InboxError {
    match outcome.as_failure() {
        Some(failure) => InboxError::Failed { failure: failure.clone(), replayed },
        None => InboxError::Store(Error::invalid("inbox: a failure without a reason")),
    }
}

/// Waits before the next attempt: longer after each round, with jitter.
pub(crate) async fn pause(round: u32) {
    let longest = Duration::from_millis(5 << round.min(6));
    sleep(longest.mul_f64(rand::random_range(0.5..1.0))).await;
}

impl InboxSettings {
    /// The verdict on a handler's error. A table without outcomes cannot record a failure: it would look like a
    /// success there.
    pub(crate) fn verdict(&self, error: WorkError) -> Verdict {
        match self.variant.keeps_outcomes() {
            true => Verdict::of_error(error, &*self.classifier),
            false => Verdict::Retry(error),
        }
    }

    pub(crate) fn is_partition_missing(&self, error: &TxError) -> bool {
        self.variant == InboxVariant::Partitioned && error.is_without_partition()
    }

    /// Whether a handler failed with an SQL error that a new transaction may avoid.
    pub(crate) fn is_retryable(error: &WorkError) -> bool {
        sqlstate_of(error.error()).is_some_and(|code| is_retryable(&code))
    }
}
