//! What a record says about the request that it stands for: which part of a request differs from it.

use super::{Engine, run::unanswered};
use crate::background;
use crate::{Fingerprint, Key, PartDigests, Result, sync::Instant};

/// A fingerprint and, where the caller knows them, digests of the parts that it was made from.
#[derive(Clone, Copy, Debug)]
pub struct DetailedFingerprint {
    pub(super) fingerprint: Fingerprint,
    pub(super) parts: Option<PartDigests>,
}

impl DetailedFingerprint {
    /// With the digests that [`Engine::part_digests`] made.
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

/// The request that a live record stands for, compared with another one.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRequest {
    /// Whether both have one fingerprint.
    pub same_fingerprint: bool,
    /// What the record knows of the parts of its request.
    pub parts: RecordedDigests,
}

/// What a record knows of the parts of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDigests {
    /// Their digests.
    Known(PartDigests),
    /// Only those of an earlier request, after which the key was released without effect.
    Outdated,
    /// Nothing: the claim gave no digests, or an earlier version of semel made the record.
    Missing,
    /// Nothing: the record has no labels.
    Redacted,
}

impl Engine {
    /// Digests of the parts of a request, keyed by the engine's hash secret. The position of a part is
    /// its name.
    #[must_use]
    pub fn part_digests(&self, parts: &[&[u8]]) -> PartDigests {
        PartDigests::of(parts, self.inner.secret.as_ref())
    }

    /// Looks at the record of a key, without claiming it. `None`: there is no live record.
    ///
    /// # Errors
    ///
    /// When the store does not answer in time, or cannot read the record.
    pub async fn recorded_request(
        &self,
        key: &Key,
        fingerprint: &Fingerprint,
    ) -> Result<Option<RecordedRequest>> {
        let (secret, store) = (self.inner.secret.as_ref(), self.inner.store.clone());
        let (key, fingerprint) = (key.hash(secret), fingerprint.sealed(secret));
        let call = Box::pin(async move { (*store).get(&key).await });
        let seen = background::within(self.patience(Instant::now()), call, drop).await;
        let Some(seen) = seen.unwrap_or_else(|| Err(unanswered()))? else { return Ok(None) };
        let record = seen.record;
        if record.is_expired(seen.at) {
            return Ok(None);
        }
        let parts = match record.labels.as_ref().map(|labels| labels.parts()) {
            None => RecordedDigests::Redacted,
            Some(None) => RecordedDigests::Missing,
            Some(Some(parts)) => match record.fingerprint.and_then(|it| parts.of(&it)) {
                Some(digests) => RecordedDigests::Known(digests),
                None => RecordedDigests::Outdated,
            },
        };
        let same_fingerprint = record.fingerprint == Some(fingerprint);
        Ok(Some(RecordedRequest { same_fingerprint, parts }))
    }
}
