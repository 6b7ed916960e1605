//! A trial says what would have happened to a key, without running work or answering a caller. Routes in mode `observe`
//! use it.

use std::sync::Arc;

use super::{Engine, claim::claim_timed_out};
use crate::{
    Claim, CompleteRequest, Effect, Fingerprint, Key, Lease, OnLostOwner, ReleaseRequest, Result,
    Store, Verdict, background, sync::Instant,
};

/// What would have happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The work would have run, and its verdict is recorded.
    First,
    /// The recorded outcome would have been the answer.
    Replay,
    /// The key was used with another fingerprint.
    Mismatch,
    /// Another trial is under way.
    Busy,
    /// Unknown, dead or erased.
    Other,
}

impl Engine {
    /// Claims a key and settles it at once with the verdict of work that ran outside the engine. The engine runs
    /// nothing, and neither counts nor logs the trial. Use a separate namespace for trials.
    ///
    /// # Errors
    ///
    /// When the store does not reply in time.
    pub async fn trial(
        &self,
        key: &Key,
        fingerprint: &Fingerprint,
        verdict: Verdict,
    ) -> Result<Trial> {
        self.check_open()?;
        let (store, fingerprint) = (self.inner.store.clone(), (*fingerprint).into());
        let mut request = self.claim_request(key, &fingerprint);
        // Whatever the policy says: a key of a trial must never wait for an operator, nor run out of attempts.
        request.terms.on_lost_owner = OnLostOwner::Rerun;
        request.terms.max_attempts = None;
        let trial = Box::pin(async move {
            Ok(match store.claim(&request).await? {
                Claim::Granted(lease) => {
                    settle(&*store, lease, verdict).await?;
                    Trial::First
                }
                Claim::Replay(_) => Trial::Replay,
                Claim::Mismatch => Trial::Mismatch,
                Claim::Busy { .. } | Claim::Released => Trial::Busy,
                Claim::Unknown | Claim::Dead | Claim::Gone => Trial::Other,
            })
        });
        let patience = self.patience(Instant::now());
        let reply = background::timeout_without_cancel(patience, trial, drop).await;
        reply.unwrap_or_else(|| Err(claim_timed_out()))
    }
}

async fn settle(store: &dyn Store, lease: Lease, verdict: Verdict) -> Result<()> {
    let owner = lease.owner;
    let effect = match verdict {
        Verdict::Final(outcome) => {
            let outcome = Arc::new(outcome);
            return store.complete(&CompleteRequest { owner, outcome }).await.map(drop);
        }
        Verdict::NoEffect(_) => Effect::None,
        // The work may have had an effect: the key keeps its fingerprint, so another use of it is a mismatch.
        Verdict::Retry(_) | Verdict::Indeterminate(_) => Effect::Possible,
    };
    store.release(&ReleaseRequest { owner, effect }).await.map(drop)
}
