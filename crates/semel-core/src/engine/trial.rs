//! A trial: what would have happened to a key, without running or answering anything.

use std::sync::Arc;

use super::{Engine, run::unanswered};
use crate::background;
use crate::{
    Claim, CompleteRequest, Effect, Fingerprint, Key, Lease, OnLostOwner, ReleaseRequest, Result,
    Store, Verdict, sync::Instant,
};

/// What would have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The work would have run, and its verdict counts from now on.
    First,
    /// The recorded outcome would have been the answer.
    Replay,
    /// The key was used for something else.
    Mismatch,
    /// Another trial is under way.
    Busy,
    /// Unknown, dead or erased.
    Other,
}

impl Engine {
    /// Claims a key and settles it at once with a verdict that somebody else came to. Nothing runs,
    /// and the engine's counters and logs say nothing of it: use a namespace of its own.
    ///
    /// # Errors
    ///
    /// When the store does not answer in time.
    pub async fn trial(
        &self,
        key: &Key,
        fingerprint: &Fingerprint,
        verdict: Verdict,
    ) -> Result<Trial> {
        self.check_open()?;
        let (store, fingerprint) = (self.inner.store.clone(), (*fingerprint).into());
        let mut request = self.claim_request(key, &fingerprint);
        // Whatever the policy: nothing that is only tried may wait for an operator, or die.
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
        background::within(patience, trial, drop).await.unwrap_or_else(|| Err(unanswered()))
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
        // Something may have happened: the key stays with what was asked, and another use of it counts.
        Verdict::Retry(_) | Verdict::Indeterminate(_) => Effect::Possible,
    };
    store.release(&ReleaseRequest { owner, effect }).await.map(drop)
}
