//! One attempt: runs the work under a renewed lease, and settles the key by the work's verdict.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;

use super::{
    Context, Engine, RawAnswer,
    claim::ClaimCall,
    lease_lost::LeaseLost,
    renewal::LeaseRenewal,
    run::BoxedWork,
    singleflight::{CallResult, Leader},
};
use crate::{
    ErrorClass, KeyHash, Lease, Verdict, WorkError,
    sync::Instant,
    telemetry::{self, GaugeCount},
};

/// A granted claim whose work is to run. Boxed, since a future holds an argument that it takes by value twice.
pub(super) struct GrantedCall {
    pub(super) leader: Leader,
    pub(super) lease: Lease,
    pub(super) claim: ClaimCall,
}

impl Engine {
    pub(super) async fn run_attempt(
        self,
        mut granted: Box<GrantedCall>,
        work: BoxedWork,
    ) -> Option<CallResult> {
        let (max_run, sent) = (self.policy.max_run, granted.claim.sent);
        let lost = LeaseLost::new(granted.leader.entry(), self.policy.store_down);
        let renewal =
            LeaseRenewal::new(self.inner.clone(), &granted.lease, sent, max_run, lost.clone());
        granted.leader.set_running(granted.lease.length);
        let context = Context::new(&granted.lease, granted.claim.began + max_run, lost);
        telemetry::granted(&granted.claim.request.key, granted.lease.takeover);
        let in_flight = GaugeCount::new(telemetry::name::IN_FLIGHT);
        // After a crash from here on the lease expires by itself. If the task is dropped, `release_on_drop` abandons
        // the key.
        granted.claim.release_on_drop.work_started();
        let verdict = call_work(work, context).await;
        granted.claim.release_on_drop.disarm();
        let result = self.settle(&granted.claim.request, &granted.lease, verdict, renewal).await;
        drop(in_flight);
        Some(granted.leader.finish(result))
    }

    /// Runs the work although the store does not answer, because the policy says so.
    pub(super) async fn run_unprotected(
        &self,
        leader: Leader,
        key: KeyHash,
        work: BoxedWork,
    ) -> CallResult {
        tracing::warn!("Idempotent request {key} runs without protection: the store is down");
        let context = Context::unprotected(key, Instant::now() + self.policy.max_run);
        leader.set_running(self.policy.lease);
        let in_flight = GaugeCount::new(telemetry::name::IN_FLIGHT);
        let result = self.unprotected_result(call_work(work, context).await);
        drop(in_flight);
        leader.finish(result)
    }

    fn unprotected_result(&self, verdict: Verdict) -> CallResult {
        match verdict {
            Verdict::Final(outcome) => {
                let value = Arc::new(outcome);
                Ok(RawAnswer { value, replayed: false, stored: false, attempt: 0 })
            }
            Verdict::NoEffect(error) | Verdict::Retry(error) | Verdict::Indeterminate(error) => {
                Err(self.retry_of(error, 0, Duration::ZERO))
            }
        }
    }
}

/// Calls the work. A panic becomes an indeterminate verdict: the work may or may not have taken effect.
async fn call_work(work: BoxedWork, context: Context) -> Verdict {
    let verdict = match panic::catch_unwind(AssertUnwindSafe(|| work(context))) {
        Ok(running) => AssertUnwindSafe(running).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    // The panic's payload may quote the request, so it is not kept.
    verdict.unwrap_or_else(|_| {
        let error = WorkError::indeterminate("the work panicked").class(ErrorClass::Panic);
        Verdict::Indeterminate(error)
    })
}
