//! Drives granted work: under a renewed lease, to its verdict.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{
    Context, Engine, RawAnswer,
    flight::{Landing, Lead},
    lost::Lost,
    renewal::Keeper,
    run::{Asked, Work},
};
use crate::{
    ErrorClass, KeyHash, Lease, Verdict, WorkError,
    sync::Instant,
    telemetry::{self, Counted},
};

impl Engine {
    pub(super) async fn drive(self, lead: Lead, lease: Lease, asked: Asked, work: Work) -> Landing {
        let Asked { request, began, sent, mut custody, .. } = asked;
        let lost = Lost::of(lead.listing(), self.policy.store_down);
        let max_run = self.policy.max_run;
        let keeper = Keeper::new(self.inner.clone(), &lease, sent, max_run, lost.clone());
        lead.running(lease.length);
        let context = Context::new(&lease, began + max_run, lost);
        telemetry::granted(&request.key, lease.takeover);
        let in_flight = Counted::new(telemetry::name::IN_FLIGHT);
        // A crash from here on leaves a lease that lapses; a dropped task is cleaned up by custody.
        custody.started();
        let verdict = attempt(work, context).await;
        custody.over();
        let landing = self.settle(&request, lease, verdict, keeper).await;
        drop(in_flight);
        lead.land(landing)
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
    let attempt = AssertUnwindSafe(async move { work(context).await });
    attempt.catch_unwind().await.unwrap_or_else(|_| {
        // The payload of the panic may quote what was asked; it is not kept.
        let error = WorkError::indeterminate("the work panicked").class(ErrorClass::Panic);
        Verdict::Indeterminate(error)
    })
}
