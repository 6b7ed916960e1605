//! One call on its way: read, decide, write if nothing changed, and again if something did.
//!
//! ```text
//! claim:     write, expecting no key ──taken──▶ answered
//!                 │ not so, or no answer
//!                 ▼
//! others:  ─▶ read from the leader ──▶ the pure step decides ──▶ answered, nothing to write
//!                 ▲     │ it holds what this call wrote             │
//!                 │     ├──────────────▶ answered                   │
//!                 │     │ others changed it since, perhaps          │
//!                 │     └──────────────▶ nobody knows               ▼
//!                 └──── changed meanwhile, or no answer ◀── write, expecting what was read
//! ```
//! A completion of a claim that this process remembers begins with the write.

use std::time::Instant;

use bytes::Bytes;
use semel_core::{
    Error, ErrorKind, Result,
    steps::{StoreReply, StoreRequest},
};
use semel_remote::timeout_with_grace;

use crate::{
    bucket_client::{Link, Over},
    error::{Trouble, timed_out},
    sightings::Known,
    unacknowledged::Write,
};

/// One call on its way.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) link: &'a Link,
    pub(crate) known: &'a Known,
    pub(crate) call: &'a StoreRequest,
    /// What it wrote without an answer; any of it may have been taken.
    pub(crate) unanswered: Vec<Write>,
    /// How it tried to delete the key, without an answer.
    pub(crate) deleted: Option<Deletion>,
    /// The bucket refused a write for want of room.
    pub(crate) full: Option<Error>,
    /// The bucket's last room is for what is claimed already.
    pub(crate) scarce: bool,
    /// Connections that were lost before this call.
    pub(crate) losses: u64,
    pub(crate) over: Over,
}

/// What to do about a key as it was seen.
#[derive(Debug)]
pub(crate) enum Next {
    Say(StoreReply),
    /// Only the key itself can tell.
    Read,
    Write(Box<Write>),
    Delete {
        revision: u64,
        said: StoreReply,
    },
}

/// A deletion of a revision, and the mark that it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) revision: u64,
    pub(crate) mark: Bytes,
}

/// Serves one call. It is over within the call timeout.
pub(crate) async fn serve(link: &Link, known: &Known, call: &StoreRequest) -> Result<StoreReply> {
    Job {
        link,
        known,
        call,
        unanswered: Vec::new(),
        deleted: None,
        full: None,
        scarce: link.room.is_scarce(),
        losses: link.losses.count(),
        over: Over::Callers,
    }
    .serve()
    .await
}

impl Job<'_> {
    async fn serve(&mut self) -> Result<StoreReply> {
        let (deadline, mut lost) = (Instant::now() + self.link.call_timeout, None);
        if let Some(seen) = self.assumed() {
            let next = self.next(seen, self.link.now())?;
            if let Some(said) = self.take(next, &mut lost).await? {
                return Ok(said);
            }
        }
        // Boxed: most calls never get here, and all of them would carry it.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(lost.unwrap_or_else(timed_out));
        }
        let served = timeout_with_grace(left, Box::pin(self.serve_by_reading(lost))).await;
        served.unwrap_or_else(|| Err(timed_out()))
    }

    /// What was decided is tried. `None`: the key has to be read.
    pub(crate) async fn take(
        &mut self,
        next: Next,
        lost: &mut Option<Error>,
    ) -> Result<Option<StoreReply>> {
        let tried = match next {
            Next::Say(said) => return Ok(Some(said)),
            Next::Read => return Ok(None),
            Next::Write(write) => self.put(write).await,
            Next::Delete { revision, said } => self.delete(revision).await.map(|_| said),
        };
        match tried {
            Ok(said) => Ok(Some(said)),
            Err(Trouble::Conflict) => Ok(None),
            Err(Trouble::Lost(error)) => {
                *lost = Some(error);
                Ok(None)
            }
            // A full bucket still says how a key stands.
            Err(Trouble::Full(error)) if self.is_claim() && self.full.is_none() => {
                self.full = Some(error);
                Ok(None)
            }
            Err(trouble) => Err(self.failed(trouble)),
        }
    }

    /// A refusal is certain only if nothing was left unanswered before.
    pub(crate) fn failed(&self, trouble: Trouble) -> Error {
        let error = trouble.into_error();
        match self.is_uncertain() {
            true => Error::new(ErrorKind::Unavailable, error.to_string()),
            false => error,
        }
    }

    const fn is_uncertain(&self) -> bool {
        !self.unanswered.is_empty() || self.deleted.is_some()
    }

    pub(crate) const fn is_claim(&self) -> bool {
        matches!(self.call, StoreRequest::Claim(_))
    }
}
