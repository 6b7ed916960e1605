//! Drives granted work: under a renewed lease, to its verdict.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;

use super::{
    Context, Engine, RawAnswer,
    lease_lost::Lost,
    renewal::Keeper,
    run::{Asked, Work},
    singleflight::{Landing, Lead},
};
use crate::{
    ErrorClass, KeyHash, Lease, Verdict, WorkError,
    sync::Instant,
    telemetry::{self, Counted},
};

/// A granted claim on its way. Boxed: what a future is given by value it holds twice.
pub(super) struct Leg {
    pub(super) lead: Lead,
    pub(super) lease: Lease,
    pub(super) asked: Asked,
}

impl Engine {
    pub(super) async fn drive(self, mut leg: Box<Leg>, work: Work) -> Option<Landing> {
        let (max_run, sent) = (self.policy.max_run, leg.asked.sent);
        let lost = Lost::of(leg.lead.listing(), self.policy.store_down);
        let keeper = Keeper::new(self.inner.clone(), &leg.lease, sent, max_run, lost.clone());
        leg.lead.running(leg.lease.length);
        let context = Context::new(&leg.lease, leg.asked.began + max_run, lost);
        telemetry::granted(&leg.asked.request.key, leg.lease.takeover);
        let in_flight = Counted::new(telemetry::name::IN_FLIGHT);
        // A crash from here on leaves a lease that lapses; a dropped task is cleaned up by custody.
        leg.asked.custody.started();
        let verdict = attempt(work, context).await;
        leg.asked.custody.over();
        let landing = self.settle(&leg.asked.request, &leg.lease, verdict, keeper).await;
        drop(in_flight);
        Some(leg.lead.land(landing))
    }

    /// Runs the work although the store does not answer, because the policy says so.
    pub(super) async fn run_unprotected(&self, lead: Lead, key: KeyHash, work: Work) -> Landing {
        tracing::warn!("Idempotent request {key} runs without protection: the store is down");
        let context = Context::unprotected(key, Instant::now() + self.policy.max_run);
        lead.running(self.policy.lease);
        let in_flight = Counted::new(telemetry::name::IN_FLIGHT);
        let landing = self.unprotected_landing(attempt(work, context).await);
        drop(in_flight);
        lead.land(landing)
    }

    fn unprotected_landing(&self, verdict: Verdict) -> Landing {
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

/// One attempt. A panic is an answer too: nobody can say what happened.
async fn attempt(work: Work, context: Context) -> Verdict {
    let verdict = match panic::catch_unwind(AssertUnwindSafe(|| work(context))) {
        Ok(attempt) => AssertUnwindSafe(attempt).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    // The payload of the panic may quote what was asked; it is not kept.
    verdict.unwrap_or_else(|_| {
        let error = WorkError::indeterminate("the work panicked").class(ErrorClass::Panic);
        Verdict::Indeterminate(error)
    })
}
