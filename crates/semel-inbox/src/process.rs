//! One event: claim, handle, record and commit in one transaction.

use std::time::Duration;

use semel_core::{Error, ErrorKind, Outcome, Verdict, WorkError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use crate::{
    Done, InboxContext, InboxError, InboxEvent, InboxPool, InboxTransaction, InboxTx, InboxVariant,
    PgInbox,
    claim::{Ask, Standing},
    inbox::About,
    transaction::{TxError, code_in, is_again},
};

/// The savepoint is where a final failure goes back to, claim and all. The setting says to the claim that comes with it
/// that there is a transaction: outside of one it would be recorded alone.
pub(crate) const BEGIN: &str = "BEGIN; SET LOCAL semel.begun = 'on'; SAVEPOINT semel";
const BACK: &str = "ROLLBACK TO SAVEPOINT semel";

/// Why an attempt is over.
pub(crate) enum Stop {
    /// A fresh transaction may succeed. After a commit without an answer it tells whether there was one.
    Again(Error),
    /// The server will not commit what a handler wrote, such as a row that a deferred constraint forbids.
    Uncommitted(TxError),
    For(InboxError),
}

impl Stop {
    /// Why a commit failed.
    pub(crate) fn at_commit(error: TxError) -> Self {
        match error.is_refusal() && !error.is_again() && !error.is_aborted() {
            true => Self::Uncommitted(error),
            false => error.into(),
        }
    }

    pub(crate) fn into_error(self) -> InboxError {
        self.of_one().map_or_else(|error| error, InboxError::Store)
    }

    /// For one event, what the server will not commit is its handler's error. Nothing can be recorded of it.
    pub(crate) fn of_one(self) -> Result<Error, InboxError> {
        match self {
            Self::Again(error) => Ok(error),
            Self::Uncommitted(error) => Err(InboxError::Retry(WorkError::retry(error))),
            Self::For(error) => Err(error),
        }
    }
}

impl From<InboxError> for Stop {
    fn from(error: InboxError) -> Self {
        Self::For(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::For(InboxError::Store(error))
    }
}

impl From<TxError> for Stop {
    fn from(error: TxError) -> Self {
        if error.is_aborted() {
            return Self::For(InboxError::Store(Error::invalid(
                "inbox: the handler went on after a statement had failed, and nothing is written; let it \
                 return the error, or put the statement between SAVEPOINT and ROLLBACK TO",
            )));
        }
        match error.is_again() || error.is_connection() {
            true => Self::Again(error.into()),
            false => Self::For(InboxError::Store(error.into())),
        }
    }
}

impl<P: InboxPool> PgInbox<P> {
    /// Runs `handler` for this event if nobody has, in a transaction that also records the event. What the
    /// handler writes through it happens exactly once, as long as the event is remembered.
    ///
    /// The handler may be called again after a deadlock or a lost connection: what it did outside of the
    /// transaction is not undone. Where the call is spawned, let the handler own what it uses
    /// (`async move |tx, ctx| …`): the compiler cannot tell yet that borrowing it may leave the thread.
    ///
    /// # Errors
    ///
    /// [`InboxError::Failed`] when the handler, now or for an earlier copy, failed for good;
    /// [`InboxError::Retry`] and [`InboxError::Store`] when nothing is written and it is to be tried again.
    pub async fn process<T, F>(&self, event: &InboxEvent, handler: F) -> Result<Done<T>, InboxError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxContext) -> Result<T, WorkError>,
    {
        let context = self.about.context(event)?;
        let ask = self.about.ask(event, &context)?;
        let mut round = 0;
        loop {
            round += 1;
            match self.attempt(&ask, &context, &handler).await {
                Ok(done) => return Ok(done),
                Err(stop) => {
                    let error = stop.of_one()?;
                    if round >= self.about.options.policy.attempts {
                        return Err(InboxError::Store(error));
                    }
                    pause(round).await;
                }
            }
        }
    }

    async fn attempt<T, F>(
        &self,
        ask: &Ask,
        context: &InboxContext,
        handler: &F,
    ) -> Result<Done<T>, Stop>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxContext) -> Result<T, WorkError>,
    {
        let about = &self.about;
        let (mut tx, said) =
            match self.pool.begin(BEGIN, &about.statements.claim, &ask.parameters()).await {
                Ok(begun) => begun,
                Err(error) if error.is_locked() => return Ok(Done::Busy),
                Err(error) if about.lacks_partition(&error) => {
                    return Err(self.partition_for(&ask.day).await);
                }
                Err(error) => return Err(error.into()),
            };
        match Standing::read(said.as_deref())? {
            Standing::New => {}
            Standing::Busy => {
                tx.roll_back().await?;
                return Ok(Done::Busy);
            }
            Standing::Duplicate => {
                let recorded = about.outcome(&mut tx, ask.row()).await?;
                tx.roll_back().await?;
                return Ok(duplicate(recorded.as_deref())?);
            }
        }
        match handler(&mut tx, context).await {
            Ok(value) => {
                if let Verdict::Final(outcome) = Verdict::success(&value) {
                    about.record(&mut tx, &[(ask.row(), &outcome)]).await?;
                }
                tx.commit().await.map_err(Stop::at_commit)?;
                Ok(Done::Now(value))
            }
            Err(error) => Err(self.failed(tx, ask, error).await),
        }
    }

    /// Nothing that a failed handler wrote is kept; that it failed for good is.
    async fn failed(&self, mut tx: P::Tx, ask: &Ask, error: WorkError) -> Stop {
        if About::is_again(&error) {
            let _ = tx.roll_back().await;
            return again("the handler's transaction could not go on");
        }
        match self.about.verdict(error) {
            Verdict::Final(outcome) => match self.record_failure(&mut tx, ask, &outcome).await {
                Ok(()) => tx
                    .commit()
                    .await
                    .map_or_else(Stop::from, |()| Stop::For(failure(&outcome, false))),
                Err(stop) => stop,
            },
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                // If it fails the connection does, and the server rolls back by itself.
                let _ = tx.roll_back().await;
                Stop::For(InboxError::Retry(error))
            }
        }
    }

    async fn record_failure(
        &self,
        tx: &mut P::Tx,
        ask: &Ask,
        outcome: &Outcome,
    ) -> Result<(), Stop> {
        tx.run(BACK).await?;
        let said = tx.ask(&self.about.statements.claim, &ask.parameters()).await?;
        match Standing::read(said.as_deref())? {
            Standing::New => Ok(self.about.record(tx, &[(ask.row(), outcome)]).await?),
            // A twin was quicker: the next attempt is told what it says.
            Standing::Duplicate | Standing::Busy => {
                Err(again("a twin took the event while a failure was to be recorded"))
            }
        }
    }
}

pub(crate) fn again(what: &str) -> Stop {
    Stop::Again(Error::new(ErrorKind::Unavailable, format!("inbox: {what}")))
}

/// The answer from a recorded outcome.
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
        None => InboxError::Store(Error::invalid("inbox: a failure without a word")),
    }
}

/// Longer from time to time, and never the same for two.
pub(crate) async fn pause(round: u32) {
    let most = Duration::from_millis(5 << round.min(6));
    sleep(most.mul_f64(rand::random_range(0.5..1.0))).await;
}

impl About {
    /// What an error of a handler means. A table that cannot say that an event failed is not told so: it would be
    /// taken for a success.
    pub(crate) fn verdict(&self, error: WorkError) -> Verdict {
        match self.variant.keeps_outcomes() {
            true => Verdict::of_error(error, &*self.classifier),
            false => Verdict::Retry(error),
        }
    }

    pub(crate) fn lacks_partition(&self, error: &TxError) -> bool {
        self.variant == InboxVariant::Partitioned && error.is_without_partition()
    }

    /// Whether an error of a handler calls for a fresh transaction.
    pub(crate) fn is_again(error: &WorkError) -> bool {
        code_in(error.error()).is_some_and(|code| is_again(&code))
    }
}
