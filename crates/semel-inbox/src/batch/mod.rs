//! Processes many events in one transaction.

mod event_batch;
mod handlers;
mod results;

use std::{
    collections::{HashMap, HashSet},
    slice,
    time::Duration,
};

use semel_core::{Error, ErrorKind, Outcome, WorkError};
use serde::{Serialize, de::DeserializeOwned};

use self::{
    event_batch::{EventBatch, EventState},
    handlers::{BatchHandler, OneCallForAll, OneCallPerEvent},
    results::BatchResults,
};
use crate::{
    Done, InboxContext, InboxError, InboxEvent, InboxPool, InboxTransaction, InboxTx, PgInbox,
    claim::EventRow,
    inbox::InboxSettings,
    process::{AttemptError, BEGIN, pause, retry},
    sql::array,
    transaction::TxError,
};

/// Parts of a batch that may meet a lock. After that, a part with a lock is not divided further, and its events stay
/// busy.
const MAX_LOCKED_PARTS: usize = 40;

/// How long the claim of one part waits for a lock.
const PART_PATIENCE: Duration = Duration::from_millis(5);

impl<P: InboxPool> PgInbox<P> {
    /// Runs `handler` once for all of these events that are new, in one transaction: for work that is one
    /// statement over many rows. An event that the table cannot hold, such as one of a dropped day, gets its own
    /// error, and the others are processed. Results are in the order of `events`.
    ///
    /// # Errors
    ///
    /// When the handler or the server fails. Then nothing of the batch is written or recorded: deliver it again. Use
    /// [`PgInbox::process_each`] where one bad event must not hold up the others.
    pub async fn process_batch<F>(
        &self,
        events: &[InboxEvent],
        handler: F,
    ) -> Result<Vec<Result<Done<()>, InboxError>>, InboxError>
    where
        F: AsyncFn(&mut P::Tx, &[&InboxEvent]) -> Result<(), WorkError>,
    {
        let done = self.in_batch(events, &OneCallForAll(handler)).await;
        let (batch, results) = done.map_err(AttemptError::into_error)?;
        Ok(results.into_results(&batch))
    }

    /// Runs `handler` for each of these events that is new, each under a savepoint, in one transaction. An event
    /// whose handler fails is not recorded, or recorded as failed for good; an event that the table cannot hold gets
    /// its own error. The other events are not affected. Results are in the order of `events`.
    ///
    /// Deferred constraints are checked after each handler. If the server still refuses the commit, because of a
    /// concurrent change, nothing is written, and each event runs once more in its own transaction.
    ///
    /// # Errors
    ///
    /// When the server fails. Then nothing of the batch is written.
    pub async fn process_each<T, F>(
        &self,
        events: &[InboxEvent],
        handler: F,
    ) -> Result<Vec<Result<Done<T>, InboxError>>, InboxError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFn(&mut P::Tx, &InboxEvent, &InboxContext) -> Result<T, WorkError>,
    {
        let each = OneCallPerEvent(handler);
        match self.in_batch(events, &each).await {
            Ok((batch, results)) => Ok(results.into_results(&batch)),
            Err(AttemptError::CommitRefused(_)) if events.len() > 1 => {
                Ok(self.process_one_by_one(events, &each).await)
            }
            Err(AttemptError::CommitRefused(error)) => {
                Ok(vec![Err(AttemptError::CommitRefused(error).into_error())])
            }
            Err(error) => Err(error.into_error()),
        }
    }

    /// One of these events makes the commit fail. Each runs in its own transaction, so that only that one fails.
    async fn process_one_by_one<T: Serialize + DeserializeOwned>(
        &self,
        events: &[InboxEvent],
        handler: &impl BatchHandler<P, T>,
    ) -> Vec<Result<Done<T>, InboxError>> {
        let batch = EventBatch::new(&self.settings, events);
        let mut unavailable: Option<Error> = None;
        let mut results = Vec::with_capacity(events.len());
        for (at, event) in events.iter().enumerate() {
            if let Some(error) = batch.refused.get(&at).or(unavailable.as_ref()) {
                results.push(Err(InboxError::Store(error.clone())));
                continue;
            }
            results.extend(match self.in_batch(slice::from_ref(event), handler).await {
                Ok((batch, results)) => results.into_results(&batch),
                Err(error) => {
                    let error = error.into_error();
                    // The server does not answer, so the other events fail too without being tried.
                    if let InboxError::Store(store) = &error
                        && store.kind() == ErrorKind::Unavailable
                    {
                        unavailable = Some(store.clone());
                    }
                    vec![Err(error)]
                }
            });
        }
        results
    }

    /// Claims a batch, runs its handler, and commits. Retries the attempt after a conflict.
    async fn in_batch<'e, T>(
        &self,
        events: &'e [InboxEvent],
        handler: &impl BatchHandler<P, T>,
    ) -> Result<(EventBatch<'e>, BatchResults<T>), AttemptError> {
        let mut round = 0;
        loop {
            round += 1;
            let attempt = async {
                let mut batch = EventBatch::new(&self.settings, events);
                let mut tx = self.claim_batch(&mut batch).await?;
                match handler.run(self, &mut tx, &batch).await {
                    Ok(results) => {
                        tx.commit().await.map_err(AttemptError::at_commit)?;
                        Ok((batch, results))
                    }
                    Err(error) => {
                        let _ = tx.roll_back().await;
                        Err(error)
                    }
                }
            };
            match attempt.await {
                Err(AttemptError::Retry(_)) if round < self.settings.options.policy.attempts => {
                    pause(round).await;
                }
                done => return done,
            }
        }
    }

    /// Begins a transaction in which the new events of the batch are claimed. A day without a partition gets one, or
    /// its events get an error.
    async fn claim_batch(&self, batch: &mut EventBatch<'_>) -> Result<P::Tx, AttemptError> {
        match self.claim_in_one_statement(batch).await {
            // The connection is back in the pool: creating a partition needs one.
            Err(error) if self.settings.is_partition_missing(&error) => {
                batch.refuse(&self.create_missing_partitions(batch.open_days()).await?);
            }
            claimed => return Ok(claimed?),
        }
        match self.claim_in_one_statement(batch).await {
            Err(error) if self.settings.is_partition_missing(&error) => {
                Err(retry("partitions were missing"))
            }
            claimed => Ok(claimed?),
        }
    }

    /// Takes no advisory locks, unlike the claim of one event: the server has a limited number, and a batch is large.
    async fn claim_in_one_statement(&self, batch: &mut EventBatch<'_>) -> Result<P::Tx, TxError> {
        let settings = &self.settings;
        let indexes = batch.sorted();
        let parameters = BatchClaimParameters::new(settings, batch, &indexes);
        match self.pool.begin(BEGIN, &settings.statements.claim_many, &parameters.as_array()).await
        {
            Ok((tx, reply)) => {
                batch.set_claimed(&indexes, &parse_ids(reply.as_deref())?);
                Ok(tx)
            }
            Err(error) if error.is_locked() => self.claim_in_parts(batch, indexes).await,
            Err(error) => Err(error),
        }
    }

    /// Some events are locked by other transactions: the batch is divided into halves until they are found.
    async fn claim_in_parts(
        &self,
        batch: &mut EventBatch<'_>,
        indexes: Vec<usize>,
    ) -> Result<P::Tx, TxError> {
        let (mut tx, _) = self.pool.begin(BEGIN, "SELECT '1'::text", &[]).await?;
        match self.claim_each_part(&mut tx, batch, indexes).await {
            Ok(()) => Ok(tx),
            Err(error) => {
                // Rolled back before the caller retries, because the claims made so far would block it.
                let _ = tx.roll_back().await;
                Err(error)
            }
        }
    }

    async fn claim_each_part(
        &self,
        tx: &mut P::Tx,
        batch: &mut EventBatch<'_>,
        indexes: Vec<usize>,
    ) -> Result<(), TxError> {
        let settings = &self.settings;
        let (mut parts, mut locked) = (vec![indexes], 0);
        while let Some(mut part) = parts.pop() {
            tx.run("SAVEPOINT semel_part").await?;
            let parameters =
                BatchClaimParameters::new(settings, batch, &part).with_short_patience(settings);
            match tx.query_text(&settings.statements.claim_many, &parameters.as_array()).await {
                Ok(reply) => batch.set_claimed(&part, &parse_ids(reply.as_deref())?),
                Err(error) if error.is_locked() => {
                    tx.run("ROLLBACK TO SAVEPOINT semel_part").await?;
                    locked += 1;
                    // A part that is not divided further stays busy, and its events are delivered again.
                    if part.len() > 1 && locked < MAX_LOCKED_PARTS {
                        // Popped in the order of ids, as in the statement.
                        let rest = part.split_off(part.len() / 2);
                        parts.extend([rest, part]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The recorded outcomes of the duplicates of a batch.
    async fn recorded(
        &self,
        tx: &mut P::Tx,
        batch: &EventBatch<'_>,
    ) -> Result<HashMap<String, std::sync::Arc<Outcome>>, Error> {
        let duplicates: Vec<EventRow<'_>> =
            batch.all(EventState::Duplicate).map(|at| batch.row(at)).collect();
        self.settings.outcomes(tx, &duplicates).await
    }

    /// Records the outcomes, and removes the claims of events to retry.
    async fn record_results<T: Serialize>(
        &self,
        tx: &mut P::Tx,
        batch: &EventBatch<'_>,
        results: &BatchResults<T>,
    ) -> Result<(), AttemptError> {
        let recorded: Vec<_> =
            results.outcomes.iter().map(|(at, it)| (batch.row(*at), it)).collect();
        self.settings.record(tx, &recorded).await?;
        let open: Vec<EventRow<'_>> = results.open.keys().map(|at| batch.row(*at)).collect();
        if open.is_empty() {
            return Ok(());
        }
        let (ids, days) =
            (array(open.iter().map(|row| row.id)), array(open.iter().map(|row| row.day)));
        let parameters: [&str; 3] = [&ids, &self.settings.consumer, &days];
        let reply = tx.query_text(&self.settings.statements.unclaim, &parameters).await?;
        match reply.and_then(|count| count.parse().ok()) == Some(open.len()) {
            true => Ok(()),
            false => Err(retry("claims were deleted in their own transaction")),
        }
    }
}

/// The parameters of the statement that claims many events.
struct BatchClaimParameters([String; 5]);

impl BatchClaimParameters {
    fn new(settings: &InboxSettings, batch: &EventBatch<'_>, indexes: &[usize]) -> Self {
        let indexes = || indexes.iter().copied();
        Self([
            settings.patience(),
            array(indexes().map(|at| batch.ids[at].as_str())),
            array(indexes().map(|at| batch.events[at].event_type())),
            settings.consumer.clone(),
            array(indexes().map(|at| batch.days[at])),
        ])
    }

    /// With a short patience, because many parts may be locked.
    fn with_short_patience(mut self, settings: &InboxSettings) -> Self {
        self.0[0] = settings.patience_up_to(PART_PATIENCE);
        self
    }

    fn as_array(&self) -> [&str; 5] {
        self.0.each_ref().map(String::as_str)
    }
}

fn parse_ids(reply: Option<&str>) -> Result<HashSet<String>, TxError> {
    if reply == Some("outside") {
        return Err(TxError::new(None, "the transaction did not begin"));
    }
    let unexpected_reply = |error| TxError::new(Some("XX000".to_owned()), error);
    serde_json::from_str(reply.unwrap_or_default()).map_err(unexpected_reply)
}
