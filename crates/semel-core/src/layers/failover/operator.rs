//! What operators do: to both stores, the secondary first, and half is an error that says so.

use super::{FailbackWindow, Inner, claim::counted};
use crate::{
    Erasure, Error, ErrorKind, Forgetting, KeyHash, Resolution, ResolveRequest, Result, Store,
};

impl<P: Store, S: Store + FailbackWindow> Inner<P, S> {
    /// Whoever has what the operator saw.
    pub(super) async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution> {
        let first = self.primary.resolve(request).await;
        if let Ok(Resolution::Done) = first {
            return first;
        }
        let second = match self.cover_record(&request.key).await {
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
        self.cover_record(key).await?;
        let first = self.secondary.erase(key).await?;
        let second = self.primary.erase(key).await.map_err(|error| self.half(key, &error))?;
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
        let second = self.primary.forget(key).await.map_err(|error| self.half(key, &error))?;
        Ok(match (first, second) {
            (_, refused @ Forgetting::Refused(_)) => refused,
            (Forgetting::Missing, Forgetting::Missing) => Forgetting::Missing,
            _ => Forgetting::Forgotten,
        })
    }

    /// What an operator leaves on the secondary counts for as long as an outcome from now on.
    async fn cover_record(&self, key: &KeyHash) -> Result<()> {
        match self.secondary.get(key).await? {
            Some(seen) => self.widen(counted(&seen.record.terms)).await,
            None => Ok(()),
        }
    }

    fn half(&self, key: &KeyHash, error: &Error) -> Error {
        let (done, left) = (self.secondary.info().name, self.primary.info().name);
        let subject = format!(
            "half done: key {key} is gone from {done}, but {left} has not confirmed it; repeat this when \
             {left} answers ({error})"
        );
        Error::new(ErrorKind::Unavailable, subject).with_source(error.clone())
    }
}
