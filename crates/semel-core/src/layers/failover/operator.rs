//! An operator's decisions go to both stores. If one store does not confirm, the error says which.

use super::{FailbackWindow, FailoverInner, claim::longest_validity};
use crate::{
    Erasure, Error, ErrorKind, Forgetting, KeyHash, Resolution, ResolveRequest, Result, Store,
};

impl<P: Store, S: Store + FailbackWindow> FailoverInner<P, S> {
    /// Resolves the key on the store that has the record which the operator saw.
    pub(super) async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        let first = self.primary.resolve(request).await;
        if let Ok(Resolution::Done) = first {
            return first;
        }
        let second = match self.extend_window_for_record(&request.key).await {
            Ok(()) => self.secondary.resolve(request).await,
            Err(error) => Err(error),
        };
        match (second, first) {
            (Ok(Resolution::Done), _) => Ok(Resolution::Done),
            (Ok(other), Ok(Resolution::Missing)) => Ok(other),
            (Err(error), Ok(_)) => Err(error),
            (_, first) => first,
        }
    }

    pub(super) async fn erase(&self, key: &KeyHash) -> Result<Erasure> {
        self.extend_window_for_record(key).await?;
        let first = self.secondary.erase(key).await?;
        let second = self.primary.erase(key).await.map_err(|error| self.half_done(key, &error))?;
        Ok(match (first, second) {
            (Erasure::Missing, Erasure::Missing) => Erasure::Missing,
            (Erasure::Erased, _) | (_, Erasure::Erased) => Erasure::Erased,
        })
    }

    pub(super) async fn forget(&self, key: &KeyHash) -> Result<Forgetting> {
        let first = self.secondary.forget(key).await?;
        if let Forgetting::Refused(_) = first {
            return Ok(first);
        }
        let second = self.primary.forget(key).await.map_err(|error| self.half_done(key, &error))?;
        Ok(match (first, second) {
            (_, refused @ Forgetting::Refused(_)) => refused,
            (Forgetting::Missing, Forgetting::Missing) => Forgetting::Missing,
            _ => Forgetting::Forgotten,
        })
    }

    /// Extends the failback window: what an operator leaves on the secondary counts for as long as a new outcome.
    async fn extend_window_for_record(&self, key: &KeyHash) -> Result<()> {
        match self.secondary.get(key).await? {
            Some(sighting) => self.extend_window(longest_validity(&sighting.record.terms)).await,
            None => Ok(()),
        }
    }

    fn half_done(&self, key: &KeyHash, error: &Error) -> Error {
        let (done, left) = (self.secondary.info().name, self.primary.info().name);
        let subject = format!(
            "half done: key {key} is gone from {done}, but {left} has not confirmed it; repeat this when \
             {left} answers ({error})"
        );
        Error::new(ErrorKind::Unavailable, subject).with_source(error.clone())
    }
}
