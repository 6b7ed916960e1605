//! An operator's decisions about single keys: resolve, erase, forget. Each one is logged with its reason.

use super::Engine;
use crate::{Decision, Effect, Erasure, Forgetting, KeyHash, Resolution, ResolveRequest, Result};

impl Engine {
    /// Decides a stuck key (T10).
    ///
    /// # Errors
    ///
    /// When the store does not reply; the decision may have been carried out.
    pub async fn resolve(&self, request: &ResolveRequest, reason: &str) -> Result<Resolution> {
        let decision = match &request.decision {
            Decision::Complete(outcome) if outcome.is_success() => "complete",
            Decision::Complete(_) => "fail",
            Decision::Reopen(Effect::Possible) => "rerun",
            Decision::Reopen(Effect::None) => "rerun, no effect",
        };
        let answer = self.inner.store.resolve(request).await?;
        tracing::info!(key = %request.key, decision, reason, ?answer, "resolve");
        Ok(answer)
    }

    /// Drops what a record holds and leaves a tombstone that still stops duplicates (T11).
    ///
    /// # Errors
    ///
    /// When the store does not reply; the record may have been erased.
    pub async fn erase(&self, key: &KeyHash, reason: &str) -> Result<Erasure> {
        let answer = self.inner.store.erase(key).await?;
        tracing::info!(%key, reason, ?answer, "erase");
        Ok(answer)
    }

    /// Deletes a record that has no owner; the next claim counts as the first one (T13).
    ///
    /// # Errors
    ///
    /// When the store does not reply; the record may have been deleted.
    pub async fn forget(&self, key: &KeyHash, reason: &str) -> Result<Forgetting> {
        let answer = self.inner.store.forget(key).await?;
        tracing::info!(%key, reason, ?answer, "forget");
        Ok(answer)
    }
}
