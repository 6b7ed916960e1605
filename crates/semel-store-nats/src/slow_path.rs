//! The slow path: reads the key from the leader, lets the step decide, and publishes what expects that revision.

use std::time::{Duration, Instant};

use semel_core::{
    Claim, Error, Forgetting, Result, Timestamp,
    steps::{Change, Step, StoreReply, StoreRequest},
};
use tokio::time::sleep;

use crate::{
    bucket_client::Over,
    error::{Trouble, full, overtaken, unsettled},
    request::{Job, Next},
    unacknowledged::Write,
    value::{Seen, encode},
};

/// A call that others overtook this often is given up.
const MAX_ROUNDS: u32 = 64;
/// Between two tries, once a call was overtaken a few times or got no answer.
const PAUSE: Duration = Duration::from_millis(5);
const LOST_PAUSE: Duration = Duration::from_millis(50);

impl Job<'_> {
    pub(crate) async fn serve_by_reading(&mut self, mut lost: Option<Error>) -> Result<StoreReply> {
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

    /// Waits before it tries again, unless there is nothing to wait for.
    pub(crate) async fn pause(&mut self, round: u32, lost: Option<Error>) -> Result<()> {
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

    pub(crate) async fn read(&self) -> Result<Seen, Trouble> {
        let key = self.call.key();
        let message = self.link.last(&self.link.names.record(key), self.over).await?;
        Seen::read(key, message).map_err(Trouble::Refused)
    }

    /// What this call wrote without being told so. A claim knows its own nonce, and arms its lease anew.
    pub(crate) fn recognised(&mut self, seen: &Seen) -> Option<StoreReply> {
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
    pub(crate) fn is_unsettled(&self, seen: &Seen) -> bool {
        if let StoreRequest::Claim(request) = self.call {
            return self.unanswered.iter().any(|write| write.may_be_before(seen, request.nonce));
        }
        self.awaited().any(|revision| revision != seen.revision)
    }

    /// The revisions that what got no answer has to replace.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u64> {
        let written = self.unanswered.iter().map(|write| write.revision);
        written.chain(self.deleted.iter().map(|deletion| deletion.revision))
    }

    /// The pure step decides.
    pub(crate) fn next(&self, seen: Seen, asked: Timestamp) -> Result<Next> {
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
    pub(crate) fn refuse_if_full(&self, is_new: bool) -> Result<()> {
        let scarce = (self.scarce && is_new).then(full);
        let full = self.full.clone().or(scarce);
        full.map_or(Ok(()), |full| Err(self.failed(Trouble::Full(full))))
    }

    /// Who looks at another's lease goes by what this process has seen; owners and readers do not.
    pub(crate) const fn is_judged(&self) -> bool {
        matches!(
            self.call,
            StoreRequest::Claim(_) | StoreRequest::Resolve(_) | StoreRequest::Purge(_)
        )
    }
}
