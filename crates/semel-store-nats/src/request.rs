//! One request on its way: an optimistic write, then read, decide and write until no other request comes between.
//!
//! ```text
//! claim:     write, expecting no key ──acknowledged──▶ reply
//!                 │ a conflict, or no acknowledgement
//!                 ▼
//! others:  ─▶ read from the leader ──▶ the step decides ──▶ reply, nothing to write
//!                 ▲     │ the key has what this request wrote       │
//!                 │     ├──────────────▶ reply                      │
//!                 │     │ it may have been written and replaced     │
//!                 │     └──────────────▶ error: unknown result      ▼
//!                 └──── a conflict, or no acknowledgement ◀── write, expecting what was read
//! ```
//! The completion of a claim that this process remembers begins with the write too. `fast_path.rs` has the writes,
//! `slow_path.rs` the reads and decisions.

use std::time::Instant;

use bytes::Bytes;
use semel_core::{
    Error, ErrorKind, Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::timeout_with_grace;

use crate::{
    bucket_client::{BucketClient, Via},
    error::{RequestError, timed_out},
    sightings::Sightings,
    unacknowledged::ConditionalWrite,
};

/// A store request that is being executed.
#[derive(Debug)]
pub(crate) struct NatsRequest<'a> {
    pub(crate) bucket: &'a BucketClient,
    pub(crate) sightings: &'a Sightings,
    pub(crate) request: &'a StoreRequest,
    /// Writes without an acknowledgement: any of them may have been stored.
    pub(crate) unacknowledged_writes: Vec<ConditionalWrite>,
    /// A deletion without an acknowledgement.
    pub(crate) unacknowledged_delete: Option<Deletion>,
    /// Set after the bucket refused a write because it is full.
    pub(crate) full: Option<Error>,
    /// The remaining capacity is reserved for keys that are claimed already.
    pub(crate) is_scarce: bool,
    /// The number of connections that were lost before this request.
    pub(crate) lost_connections: u64,
    pub(crate) via: Via,
}

/// What the step decided.
#[derive(Debug)]
pub(crate) enum NextStep {
    Reply(StoreReply),
    /// The key has to be read first.
    Read,
    Write(Box<ConditionalWrite>),
    Delete {
        revision: u64,
        reply: StoreReply,
    },
}

/// The deletion of a revision, and the mark in its tombstone.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) revision: u64,
    pub(crate) mark: Bytes,
}

/// Executes one request within the call timeout.
pub(crate) async fn execute(
    bucket: &BucketClient,
    sightings: &Sightings,
    request: &StoreRequest,
) -> Result<StoreReply> {
    NatsRequest {
        bucket,
        sightings,
        request,
        unacknowledged_writes: Vec::new(),
        unacknowledged_delete: None,
        full: None,
        is_scarce: bucket.capacity.is_scarce(),
        lost_connections: bucket.lost_connections.count(),
        via: Via::Caller,
    }
    .run()
    .await
}

impl NatsRequest<'_> {
    async fn run(&mut self) -> Result<StoreReply> {
        let timeout = self.bucket.pace.batch_timeout(self.bucket.call_timeout, [self.request]);
        let (deadline, mut last_error) = (Instant::now() + timeout, None);
        if let Some(snapshot) = self.assumed_snapshot() {
            let next = self.decide(snapshot, self.bucket.now())?;
            if let Some(reply) = self.execute(next, &mut last_error).await? {
                return Ok(reply);
            }
        }
        // Boxed: most requests never get here, and the future of each would be larger.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(last_error.unwrap_or_else(timed_out));
        }
        let reply = timeout_with_grace(left, Box::pin(self.slow_path(last_error))).await;
        reply.unwrap_or_else(|| Err(timed_out()))
    }

    /// Executes what was decided. `None` if the key has to be read.
    pub(crate) async fn execute(
        &mut self,
        next: NextStep,
        last_error: &mut Option<Error>,
    ) -> Result<Option<StoreReply>> {
        let done = match next {
            NextStep::Reply(reply) => return Ok(Some(reply)),
            NextStep::Read => return Ok(None),
            NextStep::Write(write) => self.put(write).await,
            NextStep::Delete { revision, reply } => self.delete(revision).await.map(|_| reply),
        };
        match done {
            Ok(reply) => Ok(Some(reply)),
            Err(RequestError::Conflict) => Ok(None),
            Err(RequestError::Unacknowledged(error)) => {
                *last_error = Some(error);
                Ok(None)
            }
            // A full bucket still answers reads, and the record may decide the claim.
            Err(RequestError::Full(error)) if self.is_claim() && self.full.is_none() => {
                self.full = Some(error);
                Ok(None)
            }
            Err(error) => Err(self.final_error(error)),
        }
    }

    /// A refusal is certain only if every earlier write was acknowledged.
    pub(crate) fn final_error(&self, error: RequestError) -> Error {
        let error = error.into_error();
        match self.has_unacknowledged() {
            true => Error::new(ErrorKind::Unavailable, error.to_string()),
            false => error,
        }
    }

    const fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged_writes.is_empty() || self.unacknowledged_delete.is_some()
    }

    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self.request, StoreRequest::Claim(_))
    }
}
