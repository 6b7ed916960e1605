//! One call on its way: read, decide, write if nothing changed, and again if something did.
//!
//! ```text
//! claim:     write, expecting no key ──taken──▶ answered
//!                 │ not so, or no answer
//!                 ▼
//! others:  ─▶ read from the leader ──▶ the pure step decides ──▶ answered, nothing to write
//!                 ▲     │ it holds what this call wrote             │
//!                 │     └──────────────▶ answered                   ▼
//!                 └──── changed meanwhile, or no answer ◀── write, expecting what was read
//! ```
//! A completion of a claim that this process remembers begins with the write.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Claim, Error, ErrorKind, Forgetting, OnLostOwner, Record, Result, State, Timestamp,
    steps::{Call, Change, Said},
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    error::{Trouble, overtaken, timed_out},
    known::{Claimed, Known},
    link::{Link, Put},
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
    call: &'a Call,
    /// What it wrote without an answer; any of it may have been taken.
    unanswered: Vec<Unanswered>,
    /// It tried to delete the key, without an answer.
    deleted: bool,
    /// The bucket refused a write for want of room.
    full: Option<Error>,
}

/// A write, and what to say if it was taken.
#[derive(Debug)]
struct Unanswered {
    bytes: Bytes,
    said: Said,
    record: Record,
}

/// Serves one call. It is over within the call timeout.
pub(crate) async fn serve(link: &Link, known: &Known, call: &Call) -> Result<Said> {
    let deadline = Instant::now() + link.call_timeout;
    let mut job = Job { link, known, call, unanswered: Vec::new(), deleted: false, full: None };
    timeout_at(deadline, job.serve()).await.unwrap_or_else(|_| Err(timed_out()))
}

impl Job<'_> {
    async fn serve(&mut self) -> Result<Said> {
        let mut lost = None;
        if let Some(seen) = self.assumed()
            && let Some(said) = self.decided(seen, self.link.now(), &mut lost).await?
        {
            return Ok(said);
        }
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
                Err(trouble) => return Err(trouble.into_error()),
            };
            if let Some(said) = self.recognised(&seen) {
                return Ok(said);
            }
            if let Some(said) = self.decided(seen, asked, &mut lost).await? {
                return Ok(said);
            }
        }
        Err(lost.unwrap_or_else(overtaken))
    }

    /// What the key most likely is, so that it need not be read first.
    fn assumed(&self) -> Option<Seen> {
        match self.call {
            Call::Claim(_) => Some(Seen::default()),
            Call::Complete(request) => {
                let Claimed { revision, record } = self.known.take(&request.owner)?;
                // A nonce does not name a key.
                (record.key == request.owner.key).then_some(())?;
                Some(Seen { revision, record: Some(record), ..Seen::default() })
            }
            Call::Renew(_)
            | Call::Release(_)
            | Call::Abandon(_)
            | Call::Resolve(_)
            | Call::Erase(_)
            | Call::Forget(_)
            | Call::Purge(_)
            | Call::Get(_) => None,
        }
    }

    /// Waits before it tries again, unless there is nothing to wait for.
    async fn pause(&self, round: u32, lost: Option<Error>) -> Result<()> {
        match lost {
            Some(error) if self.link.is_down() => return Err(error),
            Some(_) => sleep(LOST_PAUSE).await,
            None if round > 2 => sleep(PAUSE.mul_f64(rand::random_range(0.2..1.0))).await,
            None => {}
        }
        Ok(())
    }

    async fn read(&self) -> Result<Seen, Trouble> {
        let key = self.call.key();
        let message = self.link.last(&self.link.names.record(key)).await?;
        Seen::read(key, message).map_err(Trouble::Refused)
    }

    /// What this call wrote without being told so. A claim knows its own nonce, and arms its lease anew.
    fn recognised(&mut self, seen: &Seen) -> Option<Said> {
        if self.deleted && seen.record.is_none() {
            return Some(Said::Forget(Forgetting::Forgotten));
        }
        if self.is_claim() || seen.record.is_none() {
            return None;
        }
        let at = self.unanswered.iter().position(|it| it.bytes == seen.bytes)?;
        let Unanswered { said, record, .. } = self.unanswered.swap_remove(at);
        self.known.wrote(&record, seen.revision);
        Some(said)
    }

    /// The pure step decides, and what it decides is tried. `None`: the key has to be read.
    async fn decided(
        &mut self,
        seen: Seen,
        asked: Timestamp,
        lost: &mut Option<Error>,
    ) -> Result<Option<Said>> {
        let now = asked.max(seen.at);
        let was_read = seen.at > Timestamp::default() || seen.revision == 0;
        let record =
            if self.is_judged() { self.known.judged(&seen, now) } else { seen.record.clone() };
        let step = self.call.step(record.as_ref(), now);
        let tried = match step.change {
            Change::Keep if was_read => return Ok(Some(step.answer)),
            Change::Keep => return Ok(None),
            Change::Put(record) => {
                if let (Some(full), Said::Claim(Claim::Granted(_))) = (&self.full, &step.answer) {
                    return Err(full.clone());
                }
                self.put(seen.revision, record, step.answer, now).await
            }
            // What has expired, the server deletes by itself.
            Change::Delete if matches!(self.call, Call::Purge(_)) => return Ok(Some(step.answer)),
            Change::Delete => self.delete(seen.revision, step.answer).await,
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

    async fn put(
        &mut self,
        revision: u64,
        record: Record,
        said: Said,
        now: Timestamp,
    ) -> Result<Said, Trouble> {
        let value = encode(&record, now);
        let subject = self.link.names.record(&record.key);
        let put = self.link.put(subject, Some(revision), Put::Value(&value));
        let stored = match self.watch(&record) {
            None => put.await,
            Some(entry) => self.put_watched(entry, put).await,
        };
        match stored {
            Ok(revision) => {
                self.known.wrote(&record, revision);
                Ok(said)
            }
            Err(trouble @ Trouble::Lost(_)) => {
                self.unanswered.push(Unanswered { bytes: value.bytes, said, record });
                Err(trouble)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Asked for first, on one connection: the server takes the index entry first.
    async fn put_watched(
        &self,
        entry: String,
        put: impl Future<Output = Result<u64, Trouble>>,
    ) -> Result<u64, Trouble> {
        let entered = Encoded { bytes: Bytes::from_static(b"+"), ttl: None };
        let entering = self.link.put(entry, None, Put::Value(&entered));
        let (entered, stored) = tokio::join!(biased; entering, put);
        let stored = stored?;
        // What cleanup may not find may have been written all the same.
        entered.map_err(|trouble| Trouble::Lost(trouble.into_error()))?;
        Ok(stored)
    }

    async fn delete(&mut self, revision: u64, said: Said) -> Result<Said, Trouble> {
        let subject = self.link.names.record(self.call.key());
        let deleted = self.link.put(subject, Some(revision), Put::Gone).await;
        self.deleted |= matches!(deleted, Err(Trouble::Lost(_)));
        deleted.map(|_| said)
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
        if self.unanswered.is_empty() && !self.deleted {
            return error;
        }
        Error::new(ErrorKind::Unavailable, error.to_string())
    }

    const fn is_claim(&self) -> bool {
        matches!(self.call, Call::Claim(_))
    }

    /// Who looks at another's lease goes by what this process has seen; owners and readers do not.
    const fn is_judged(&self) -> bool {
        matches!(self.call, Call::Claim(_) | Call::Resolve(_) | Call::Purge(_))
    }
}
