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
    remote::in_time,
    steps::{Call, Change, Said, Step},
};
use tokio::time::sleep;

use crate::{
    error::{Trouble, overtaken, timed_out, unsettled},
    known::{Claimed, Known},
    link::{Link, Over, Put},
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
    unanswered: Vec<Write>,
    /// How it tried to delete the key, without an answer.
    deleted: Option<Deletion>,
    /// The bucket refused a write for want of room.
    full: Option<Error>,
    over: Over,
}

/// What to do about a key as it was seen.
#[derive(Debug)]
enum Next {
    Say(Said),
    /// Only the key itself can tell.
    Read,
    Write(Box<Write>),
    Delete {
        revision: u64,
        said: Said,
    },
}

/// A write, and what to say if it was taken.
#[derive(Debug)]
struct Write {
    /// What the key has to be still.
    revision: u64,
    value: Encoded,
    said: Said,
    record: Record,
}

/// A deletion of a revision, and the mark that it leaves.
#[derive(Clone, Debug)]
struct Deletion {
    revision: u64,
    mark: Bytes,
}

impl Write {
    /// Whether this is what stands there. A renewal looks like the one before it, which it has to replace.
    fn is_in(&self, seen: &Seen) -> bool {
        self.revision != seen.revision && self.value.bytes == seen.bytes
    }

    /// Whether this may have been there and was ended by others, if a claim of `nonce` wrote it. Who has the
    /// same token came first; that such a one came after a forgetting is not told apart.
    fn may_be_before(&self, seen: &Seen, nonce: Nonce) -> bool {
        if self.revision == seen.revision {
            return false;
        }
        seen.record.as_ref().is_none_or(|record| match record.state {
            State::Erased => true,
            state if record.nonce == Some(nonce) => state != State::InProgress,
            _ => record.token != self.record.token,
        })
    }
}

/// Serves one call. It is over within the call timeout.
pub(crate) async fn serve(link: &Link, known: &Known, call: &Call) -> Result<Said> {
    let (unanswered, over) = (Vec::new(), Over::Callers);
    Job { link, known, call, unanswered, deleted: None, full: None, over }.serve().await
}

impl Job<'_> {
    async fn serve(&mut self) -> Result<Said> {
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
        let served = in_time(left, Box::pin(self.serve_by_reading(lost))).await;
        served.unwrap_or_else(|| Err(timed_out()))
    }

    async fn serve_by_reading(&mut self, mut lost: Option<Error>) -> Result<Said> {
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
    fn recognised(&mut self, seen: &Seen) -> Option<Said> {
        if self.is_claim() {
            return None;
        }
        if seen.record.is_none() {
            let marked = self.deleted.as_ref().is_some_and(|deletion| deletion.mark == seen.bytes);
            return marked.then_some(Said::Forget(Forgetting::Forgotten));
        }
        let at = self.unanswered.iter().position(|write| write.is_in(seen))?;
        let Write { said, record, .. } = self.unanswered.swap_remove(at);
        self.known.wrote(record, seen.revision);
        Some(said)
    }

    /// Whether what it wrote without an answer may have been taken, and changed by others since: then nobody knows.
    fn is_unsettled(&self, seen: &Seen) -> bool {
        if let Call::Claim(request) = self.call {
            return self.unanswered.iter().any(|write| write.may_be_before(seen, request.nonce));
        }
        let written = self.unanswered.iter().map(|write| write.revision);
        let deleted = self.deleted.iter().map(|deletion| deletion.revision);
        written.chain(deleted).any(|revision| revision != seen.revision)
    }

    /// The pure step decides.
    fn next(&self, seen: Seen, asked: Timestamp) -> Result<Next> {
        let (now, revision) = (asked.max(seen.at), seen.revision);
        let was_read = seen.at > Timestamp::default() || revision == 0;
        let record = if self.is_judged() { self.known.judged(&seen, now) } else { seen.record };
        let Step { change, answer: said } = self.call.step(record.as_ref(), now);
        Ok(match change {
            // What it wrote may still arrive.
            Change::Keep if self.is_uncertain() && !self.is_claim() => return Err(unsettled()),
            Change::Keep if was_read => Next::Say(said),
            Change::Keep => Next::Read,
            Change::Put(record) => {
                if let (Some(full), Said::Claim(Claim::Granted(_))) = (&self.full, &said) {
                    return Err(self.failed(Trouble::Full(full.clone())));
                }
                let value = encode(&record, now);
                Next::Write(Box::new(Write { revision, value, said, record }))
            }
            // What has expired, the server deletes by itself.
            Change::Delete if matches!(self.call, Call::Purge(_)) => Next::Say(said),
            Change::Delete => Next::Delete { revision, said },
        })
    }

    /// What was decided is tried. `None`: the key has to be read.
    async fn take(&mut self, next: Next, lost: &mut Option<Error>) -> Result<Option<Said>> {
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

    async fn put(&mut self, write: Box<Write>) -> Result<Said, Trouble> {
        let stored = match self.watch(&write.record) {
            None => {
                let subject = self.link.names.record(&write.record.key);
                self.put_value(subject, Some(write.revision), &write.value).await
            }
            Some(entry) => Box::pin(self.put_watched(entry, &write)).await,
        };
        match stored {
            Ok(revision) => {
                let Write { said, record, .. } = *write;
                self.known.wrote(record, revision);
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
        matches!(self.call, Call::Claim(_))
    }

    /// Who looks at another's lease goes by what this process has seen; owners and readers do not.
    const fn is_judged(&self) -> bool {
        matches!(self.call, Call::Claim(_) | Call::Resolve(_) | Call::Purge(_))
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Owner, RenewRequest, Renewal, steps};

    use super::*;
    use crate::known::tests::seen;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn claimed() -> Record {
        seen(1, NOW).record.expect("it is there")
    }

    fn renewed(record: &Record, now: Timestamp) -> (Record, Encoded) {
        let owner = Owner { key: record.key, nonce: record.nonce.unwrap(), token: record.token };
        let request = RenewRequest { owner, max_run: Duration::from_secs(86_400) };
        let Change::Put(record) = steps::renew(Some(record), &request, now).change else {
            panic!("extended")
        };
        let value = encode(&record, now);
        (record, value)
    }

    #[test]
    fn a_renewal_that_was_not_taken_is_not_seen_in_the_one_before() {
        let later = |millis| NOW.after(Duration::from_millis(millis));
        let (first, stands) = renewed(&claimed(), later(5));
        let (record, value) = renewed(&first, later(10));
        assert_eq!(value.bytes, stands.bytes, "they look alike");
        let said = Said::Renew(Renewal::Extended);
        let write = Write { revision: 5, value, said, record };
        let seen = |revision| Seen { revision, bytes: stands.bytes.clone(), ..Seen::default() };
        assert!(!write.is_in(&seen(5)), "that is what it had to replace");
        assert!(write.is_in(&seen(6)));
    }

    #[test]
    fn a_claim_may_have_been_ended_unless_it_is_there_or_another_came_first() {
        let record = claimed();
        let (value, own) = (encode(&record, NOW), record.nonce.expect("it is owned"));
        let write = Write { revision: 0, value, said: Said::Get(None), record: record.clone() };
        let seen = |token, nonce, state| {
            let record = Some(Record { token, nonce: Some(nonce), state, ..record.clone() });
            Seen { revision: 6, record, ..Seen::default() }
        };
        let other = Nonce::random();
        for (seen, may_be_before, why) in [
            (Seen::default(), false, "nobody wrote"),
            (seen(1, own, State::InProgress), false, "it is there"),
            (seen(1, own, State::Unknown), true, "its lease was ended"),
            (seen(1, own, State::Dead), true, "its lease was ended"),
            (seen(1, other, State::InProgress), false, "another was first"),
            (seen(1, other, State::Completed), false, "another was first"),
            (seen(2, other, State::InProgress), true, "another, or a third after this one"),
            (seen(1, other, State::Erased), true, "a tombstone keeps the token"),
            (Seen { revision: 6, ..Seen::default() }, true, "a tombstone's end, or a forgetting"),
        ] {
            assert_eq!(write.may_be_before(&seen, own), may_be_before, "{why}: {seen:?}");
        }
    }
}
