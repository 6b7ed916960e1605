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

use std::time::{Duration, Instant};

use bytes::Bytes;
use semel_core::{
    Claim, Error, ErrorKind, Forgetting, Nonce, OnLostOwner, Record, Result, State, Timestamp,
    steps::{Change, Step, StoreReply, StoreRequest},
};
use semel_remote::timeout_with_grace;
use tokio::time::sleep;

use crate::{
    bucket_client::{Link, Over, Put},
    error::{Trouble, full, overtaken, timed_out, unsettled},
    sightings::{Claimed, Known},
    unacknowledged::Write,
    value::{Encoded, Seen, encode},
};

/// A call that others overtook this often is given up.
const MAX_ROUNDS: u32 = 64;
/// Between two tries, once a call was overtaken a few times or got no answer.
const PAUSE: Duration = Duration::from_millis(5);
const LOST_PAUSE: Duration = Duration::from_millis(50);

/// One call on its way.
#[derive(Debug)]
struct Job<'a> {
    link: &'a Link,
    known: &'a Known,
    call: &'a StoreRequest,
    /// What it wrote without an answer; any of it may have been taken.
    unanswered: Vec<Write>,
    /// How it tried to delete the key, without an answer.
    deleted: Option<Deletion>,
    /// The bucket refused a write for want of room.
    full: Option<Error>,
    /// The bucket's last room is for what is claimed already.
    scarce: bool,
    /// Connections that were lost before this call.
    losses: u64,
    over: Over,
}

/// What to do about a key as it was seen.
#[derive(Debug)]
enum Next {
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
struct Deletion {
    revision: u64,
    mark: Bytes,
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

    async fn serve_by_reading(&mut self, mut lost: Option<Error>) -> Result<StoreReply> {
        for round in 0..MAX_ROUNDS {
            self.pause(round, lost.take()).await?;
            // Before the read: what it says may be past by the time its reply is here.
            let asked = self.link.now();
            let seen = match self.read().await {
                Ok(seen) => seen,
                Err(Trouble::Lost(error)) => {
                    lost = Some(error);
                    continue;
                }
                Err(trouble) => return Err(self.failed(trouble)),
            };
            if let Some(said) = self.recognised(&seen) {
                return Ok(said);
            }
            if self.is_unsettled(&seen) {
                return Err(unsettled());
            }
            let next = self.next(seen, asked)?;
            if let Some(said) = self.take(next, &mut lost).await? {
                return Ok(said);
            }
        }
        Err(lost.unwrap_or_else(overtaken))
    }

    /// What the key most likely is, so that it need not be read first.
    fn assumed(&self) -> Option<Seen> {
        match self.call {
            StoreRequest::Claim(_) => (!self.scarce).then(Seen::default),
            StoreRequest::Complete(request) => {
                let claimed = self.known.take(&request.owner, self.losses)?;
                let Claimed { revision, record, .. } = claimed;
                // A nonce does not name a key.
                (record.key == request.owner.key).then_some(())?;
                Some(Seen { revision, record: Some(record), ..Seen::default() })
            }
            StoreRequest::Renew(_)
            | StoreRequest::Release(_)
            | StoreRequest::Abandon(_)
            | StoreRequest::Resolve(_)
            | StoreRequest::Erase(_)
            | StoreRequest::Forget(_)
            | StoreRequest::Purge(_)
            | StoreRequest::Get(_) => None,
        }
    }

    /// Waits before it tries again, unless there is nothing to wait for.
    async fn pause(&mut self, round: u32, lost: Option<Error>) -> Result<()> {
        match lost {
            Some(error) if self.link.is_down() => return Err(error),
            Some(_) => {
                // The caller's runtime may be what does not answer.
                self.over = Over::Own;
                sleep(LOST_PAUSE).await;
            }
            None if round > 2 => sleep(PAUSE.mul_f64(rand::random_range(0.2..1.0))).await,
            None => {}
        }
        Ok(())
    }

    async fn read(&self) -> Result<Seen, Trouble> {
        let key = self.call.key();
        let message = self.link.last(&self.link.names.record(key), self.over).await?;
        Seen::read(key, message).map_err(Trouble::Refused)
    }

    /// What this call wrote without being told so. A claim knows its own nonce, and arms its lease anew.
    fn recognised(&mut self, seen: &Seen) -> Option<StoreReply> {
        if self.is_claim() {
            return None;
        }
        if seen.record.is_none() {
            let marked = self.deleted.as_ref().is_some_and(|deletion| deletion.mark == seen.bytes);
            return marked.then_some(StoreReply::Forget(Forgetting::Forgotten));
        }
        let at = self.unanswered.iter().position(|write| write.is_in(seen))?;
        let Write { said, record, .. } = self.unanswered.swap_remove(at);
        self.known.wrote(record, seen.revision, self.losses);
        Some(said)
    }

    /// Whether what it wrote without an answer may have been taken, and changed by others since: then nobody knows.
    fn is_unsettled(&self, seen: &Seen) -> bool {
        if let StoreRequest::Claim(request) = self.call {
            return self.unanswered.iter().any(|write| write.may_be_before(seen, request.nonce));
        }
        self.awaited().any(|revision| revision != seen.revision)
    }

    /// The revisions that what got no answer has to replace.
    fn awaited(&self) -> impl Iterator<Item = u64> {
        let written = self.unanswered.iter().map(|write| write.revision);
        written.chain(self.deleted.iter().map(|deletion| deletion.revision))
    }

    /// The pure step decides.
    fn next(&self, seen: Seen, asked: Timestamp) -> Result<Next> {
        let (now, revision) = (asked.max(seen.at), seen.revision);
        let was_read = seen.at > Timestamp::default() || revision == 0;
        let record = match self.is_judged() {
            true => self.known.judged(&seen, now, self.losses),
            false => seen.record,
        };
        let Step { change, answer: said } = self.call.step(record.as_ref(), now);
        let is_new = record.is_none();
        Ok(match change {
            // What it wrote may still arrive.
            Change::Keep if self.awaited().any(|awaited| awaited == revision) => {
                return Err(unsettled());
            }
            Change::Keep if was_read => Next::Say(said),
            Change::Keep => Next::Read,
            Change::Put(record) => {
                if let StoreReply::Claim(Claim::Granted(_)) = said {
                    self.refuse_if_full(is_new)?;
                }
                let (value, made_at) = (encode(&record, now), Instant::now());
                Next::Write(Box::new(Write { revision, value, said, record, made_at }))
            }
            // What has expired, the server deletes by itself.
            Change::Delete if matches!(self.call, StoreRequest::Purge(_)) => Next::Say(said),
            Change::Delete => Next::Delete { revision, said },
        })
    }

    /// What is new has to leave the last room to what is claimed already.
    fn refuse_if_full(&self, is_new: bool) -> Result<()> {
        let scarce = (self.scarce && is_new).then(full);
        let full = self.full.clone().or(scarce);
        full.map_or(Ok(()), |full| Err(self.failed(Trouble::Full(full))))
    }

    /// What was decided is tried. `None`: the key has to be read.
    async fn take(&mut self, next: Next, lost: &mut Option<Error>) -> Result<Option<StoreReply>> {
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

    async fn put(&mut self, write: Box<Write>) -> Result<StoreReply, Trouble> {
        let stored = match self.watch(&write.record) {
            None => {
                let subject = self.link.names.record(&write.record.key);
                self.put_value(subject, Some(write.revision), &write.value).await
            }
            Some(entry) => Box::pin(self.put_watched(entry, &write)).await,
        };
        match stored {
            Ok(revision) => {
                let Write { revision: before, value, said, record, .. } = *write;
                if before == 0 {
                    self.link.room.took(&value.bytes);
                }
                self.known.wrote(record, revision, self.losses);
                Ok(said)
            }
            Err(trouble @ Trouble::Lost(_)) => {
                self.unanswered.push(*write);
                Err(trouble)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// The index entry is there before the record.
    async fn put_watched(&self, entry: String, write: &Write) -> Result<u64, Trouble> {
        let entered = Encoded { bytes: Bytes::from_static(b"+"), ttl: None };
        self.put_value(entry, None, &entered).await?;
        let subject = self.link.names.record(&write.record.key);
        self.put_value(subject, Some(write.revision), &write.value).await
    }

    fn put_value(
        &self,
        subject: String,
        expected: Option<u64>,
        value: &Encoded,
    ) -> impl Future<Output = Result<u64, Trouble>> + use<> {
        self.link.put(subject, expected, Put::Value(value), self.over)
    }

    async fn delete(&mut self, revision: u64) -> Result<u64, Trouble> {
        let mark = self.deleted.as_ref().map(|deletion| deletion.mark.clone());
        let mark = mark.unwrap_or_else(|| Bytes::copy_from_slice(Nonce::random().as_bytes()));
        let (subject, gone) = (self.link.names.record(self.call.key()), Put::Gone(mark.clone()));
        let deleted = self.link.put(subject, Some(revision), gone, self.over).await;
        if let Err(Trouble::Lost(_)) = deleted {
            self.deleted = Some(Deletion { revision, mark });
        }
        deleted
    }

    /// The index entry that has to be there before the record: of a claim on hold, and of a key that a
    /// claim finds dead. All that becomes Unknown was one of these.
    fn watch(&self, record: &Record) -> Option<String> {
        let held = record.terms.on_lost_owner == OnLostOwner::Hold || record.state == State::Dead;
        (held && self.is_claim()).then(|| self.link.names.watched(&record.key))
    }

    /// A refusal is certain only if nothing was left unanswered before.
    fn failed(&self, trouble: Trouble) -> Error {
        let error = trouble.into_error();
        match self.is_uncertain() {
            true => Error::new(ErrorKind::Unavailable, error.to_string()),
            false => error,
        }
    }

    const fn is_uncertain(&self) -> bool {
        !self.unanswered.is_empty() || self.deleted.is_some()
    }

    const fn is_claim(&self) -> bool {
        matches!(self.call, StoreRequest::Claim(_))
    }

    /// Who looks at another's lease goes by what this process has seen; owners and readers do not.
    const fn is_judged(&self) -> bool {
        matches!(
            self.call,
            StoreRequest::Claim(_) | StoreRequest::Resolve(_) | StoreRequest::Purge(_)
        )
    }
}
