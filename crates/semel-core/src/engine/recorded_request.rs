//! Reads the record of a key without claiming it: its outcome, or the request that it was made for, so that a mismatch
//! can name the part that differs.

use super::{Engine, RawAnswer, RunError, claim::claim_timed_out};
use crate::{Fingerprint, Key, PartDigests, Record, Result, State, background, sync::Instant};

/// A fingerprint and, where the caller has them, digests of the parts that it was made from.
#[derive(Clone, Copy, Debug)]
pub struct DetailedFingerprint {
    pub(super) fingerprint: Fingerprint,
    pub(super) parts: Option<PartDigests>,
}

impl DetailedFingerprint {
    /// A fingerprint with the digests that [`Engine::part_digests`] made.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, parts: PartDigests) -> Self {
        Self { fingerprint, parts: Some(parts) }
    }
}

impl From<Fingerprint> for DetailedFingerprint {
    fn from(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, parts: None }
    }
}

/// The request that a live record was made for, compared with another request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest {
    /// True when both have the same fingerprint.
    pub same_fingerprint: bool,
    /// The digests of the recorded request's parts.
    pub parts: RecordedDigests,
}

/// What a record holds about the parts of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDigests {
    /// Their digests.
    Known(PartDigests),
    /// The digests are those of an earlier request, after which the key was released without effect.
    Outdated,
    /// No digests: the claim had none, or an earlier version of semel made the record.
    Missing,
    /// No digests: the record has no labels.
    Redacted,
}

impl Engine {
    /// Digests of the parts of a request, keyed by the engine's hash secret. A part is identified by its position.
    #[must_use]
    pub fn part_digests(&self, parts: &[&[u8]]) -> PartDigests {
        PartDigests::of(parts, self.inner.secret.as_ref())
    }

    /// Reads the record of a key, without claiming it. `None` if there is no live record.
    ///
    /// # Errors
    ///
    /// When the store does not reply in time, or cannot read the record.
    pub async fn recorded_request(
        &self,
        key: &Key,
        fingerprint: &Fingerprint,
    ) -> Result<Option<RecordedRequest>> {
        let Some(record) = self.live_record(key).await? else { return Ok(None) };
        let parts = match record.labels.as_ref().map(|labels| labels.parts()) {
            None => RecordedDigests::Redacted,
            Some(None) => RecordedDigests::Missing,
            Some(Some(parts)) => match record.fingerprint.and_then(|it| parts.of(&it)) {
                Some(digests) => RecordedDigests::Known(digests),
                None => RecordedDigests::Outdated,
            },
        };
        let same_fingerprint = self.has_fingerprint(&record, fingerprint);
        Ok(Some(RecordedRequest { same_fingerprint, parts }))
    }

    /// Reads the recorded outcome of a key, without claiming it. `None` if the key is not completed.
    ///
    /// # Errors
    ///
    /// [`RunError::Mismatch`] when it was completed by a request with another fingerprint; [`RunError::Store`] when the
    /// store does not reply in time, or cannot read the record.
    pub async fn recorded_outcome(
        &self,
        key: &Key,
        fingerprint: &Fingerprint,
    ) -> Result<Option<RawAnswer>, RunError> {
        let record = self.live_record(key).await.map_err(RunError::Store)?;
        let Some(record) = record.filter(|record| record.state == State::Completed) else {
            return Ok(None);
        };
        if !self.has_fingerprint(&record, fingerprint) {
            return Err(RunError::Mismatch);
        }
        let answer =
            |value| RawAnswer { value, replayed: true, stored: true, attempt: record.attempts };
        Ok(record.outcome.map(answer))
    }

    async fn live_record(&self, key: &Key) -> Result<Option<Record>> {
        let (key, store) = (self.key_hash(key), self.inner.store.clone());
        let call = Box::pin(async move { (*store).get(&key).await });
        let patience = self.patience(Instant::now());
        let reply = background::timeout_without_cancel(patience, call, drop).await;
        let reply = reply.unwrap_or_else(|| Err(claim_timed_out()))?;
        Ok(reply.filter(|it| !it.record.is_expired(it.at)).map(|it| it.record))
    }

    fn has_fingerprint(&self, record: &Record, fingerprint: &Fingerprint) -> bool {
        record.fingerprint == Some(fingerprint.sealed(self.inner.secret.as_ref()))
    }
}
