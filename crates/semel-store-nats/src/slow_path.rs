//! The slow path: reads the key from the leader, lets the step decide, and writes if the key still has the revision
//! that was read.

use std::time::{Duration, Instant};

use semel_core::{
    Claim, Error, Forgetting, Result, Timestamp,
    steps::{Change, Step, StoreReply, StoreRequest},
};
use tokio::time::sleep;

use crate::{
    bucket_client::Via,
    error::{RequestError, full, overtaken, unknown_result},
    request::{NatsRequest, NextStep},
    unacknowledged::ConditionalWrite,
    value::{KeySnapshot, encode},
};

/// Rounds after which a request fails because other requests keep changing its key.
const MAX_ROUNDS: u32 = 64;
/// The pause between two rounds, after a few conflicts or after a request without a reply.
const PAUSE: Duration = Duration::from_millis(5);
const UNACKNOWLEDGED_PAUSE: Duration = Duration::from_millis(50);

impl NatsRequest<'_> {
    pub(crate) async fn slow_path(&mut self, mut last_error: Option<Error>) -> Result<StoreReply> {
        for round in 0..MAX_ROUNDS {
            self.pause(round, last_error.take()).await?;
            // Before the read: when the reply arrives, the record in it may have ended.
            let read_at = self.bucket.now();
            let snapshot = match self.read().await {
                Ok(snapshot) => snapshot,
                Err(RequestError::Unacknowledged(error)) => {
                    last_error = Some(error);
                    continue;
                }
                Err(error) => return Err(self.final_error(error)),
            };
            if let Some(reply) = self.recognised_write(&snapshot) {
                return Ok(reply);
            }
            if self.has_unknown_result(&snapshot) {
                return Err(unknown_result());
            }
            let next = self.decide(snapshot, read_at)?;
            if let Some(reply) = self.execute(next, &mut last_error).await? {
                return Ok(reply);
            }
        }
        Err(last_error.unwrap_or_else(overtaken))
    }

    /// Waits before the next round, or fails if there is no connection.
    async fn pause(&mut self, round: u32, last_error: Option<Error>) -> Result<()> {
        match last_error {
            Some(error) if self.bucket.is_disconnected() => return Err(error),
            Some(_) => {
                // The connection on the caller's runtime may be the problem.
                self.via = Via::Background;
                sleep(UNACKNOWLEDGED_PAUSE).await;
            }
            None if round > 2 => sleep(PAUSE.mul_f64(rand::random_range(0.2..1.0))).await,
            None => {}
        }
        Ok(())
    }

    async fn read(&self) -> Result<KeySnapshot, RequestError> {
        let key = self.request.key();
        let message = self.bucket.last(&self.bucket.names.record(key), self.via).await?;
        KeySnapshot::read(key, message).map_err(RequestError::Refused)
    }

    /// The reply of an unacknowledged write of this request, if the key has it. A claim needs none: it recognises its
    /// own nonce, and renews its lease.
    fn recognised_write(&mut self, snapshot: &KeySnapshot) -> Option<StoreReply> {
        if self.is_claim() {
            return None;
        }
        if snapshot.record.is_none() {
            let is_own = self
                .unacknowledged_delete
                .as_ref()
                .is_some_and(|deletion| deletion.mark == snapshot.bytes);
            return is_own.then_some(StoreReply::Forget(Forgetting::Forgotten));
        }
        let at = self.unacknowledged_writes.iter().position(|write| write.is_in(snapshot))?;
        let ConditionalWrite { reply, record, .. } = self.unacknowledged_writes.swap_remove(at);
        self.sightings.wrote(record, snapshot.revision, self.lost_connections);
        Some(reply)
    }

    /// True if an unacknowledged write may have been stored and replaced by another request since: then the result of
    /// this request is unknown.
    fn has_unknown_result(&self, snapshot: &KeySnapshot) -> bool {
        if let StoreRequest::Claim(request) = self.request {
            return self
                .unacknowledged_writes
                .iter()
                .any(|write| write.may_have_been_replaced(snapshot, request.nonce));
        }
        self.unacknowledged_revisions().any(|revision| revision != snapshot.revision)
    }

    /// The revisions that the unacknowledged writes expect.
    fn unacknowledged_revisions(&self) -> impl Iterator<Item = u64> {
        let written = self.unacknowledged_writes.iter().map(|write| write.revision);
        written.chain(self.unacknowledged_delete.iter().map(|deletion| deletion.revision))
    }

    /// Lets the step decide about a key.
    pub(crate) fn decide(&self, snapshot: KeySnapshot, read_at: Timestamp) -> Result<NextStep> {
        let (now, revision) = (read_at.max(snapshot.at), snapshot.revision);
        let was_read = snapshot.at > Timestamp::default() || revision == 0;
        let record = match self.needs_observed_lease() {
            true => self.sightings.with_observed_lease(&snapshot, now, self.lost_connections),
            false => snapshot.record,
        };
        let Step { change, answer: reply } = self.request.step(record.as_ref(), now);
        let is_new = record.is_none();
        Ok(match change {
            // An unacknowledged write that expects this revision may still be stored.
            Change::Keep
                if self.unacknowledged_revisions().any(|expected| expected == revision) =>
            {
                return Err(unknown_result());
            }
            Change::Keep if was_read => NextStep::Reply(reply),
            Change::Keep => NextStep::Read,
            Change::Put(record) => {
                if let StoreReply::Claim(Claim::Granted(_)) = reply {
                    self.refuse_if_full(is_new)?;
                }
                let (value, made_at) = (encode(&record, now), Instant::now());
                NextStep::Write(Box::new(ConditionalWrite {
                    revision,
                    value,
                    reply,
                    record,
                    made_at,
                }))
            }
            // The server itself deletes expired records.
            Change::Delete if matches!(self.request, StoreRequest::Purge(_)) => {
                NextStep::Reply(reply)
            }
            Change::Delete => NextStep::Delete { revision, reply },
        })
    }

    /// New keys must not use the capacity that is reserved for keys that are claimed already.
    fn refuse_if_full(&self, is_new: bool) -> Result<()> {
        let scarce = (self.is_scarce && is_new).then(full);
        let full = self.full.clone().or(scarce);
        full.map_or(Ok(()), |full| Err(self.final_error(RequestError::Full(full))))
    }

    /// True for requests that decide about the lease of another owner: they go by what this process has observed.
    const fn needs_observed_lease(&self) -> bool {
        matches!(
            self.request,
            StoreRequest::Claim(_) | StoreRequest::Resolve(_) | StoreRequest::Purge(_)
        )
    }
}
