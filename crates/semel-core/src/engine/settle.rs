//! Settles an attempt: records its outcome, releases the key, or abandons it.

use std::{
    future::Future,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::{
    Engine, RawAnswer, Retry, RunError, renewal::LeaseRenewal, singleflight::CallResult,
    wait_for_owner::pause,
};
use crate::{
    AbandonRequest, Abandonment, ClaimRequest, CompleteRequest, Completion, Current, Effect,
    Ending, Error, ErrorClass, ErrorKind, Failure, Lease, Outcome, Owner, Release, ReleaseRequest,
    Result, Store, Verdict, WorkError,
    background::{self, ContinueOnDrop},
    sync::Instant,
    telemetry,
    verdict::class_of,
};

/// A healthy store has this long to record an outcome before the caller gets `stored: false`.
pub(super) const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// What became of a key that was released or abandoned.
enum Released {
    Free,
    /// The store did not reply: the lease ends by itself.
    NoReply,
    Unknown,
    Superseded(Current),
}

impl Engine {
    pub(super) async fn settle(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        verdict: Verdict,
        renewal: LeaseRenewal,
    ) -> CallResult {
        match verdict {
            Verdict::Final(outcome) => {
                self.record(request, lease, Arc::new(outcome), renewal).await
            }
            Verdict::NoEffect(error) => {
                Box::pin(self.settle_failure(request, lease, Ending::NoEffect, error, renewal))
                    .await
            }
            Verdict::Retry(error) => {
                Box::pin(self.settle_failure(request, lease, Ending::Retry, error, renewal)).await
            }
            Verdict::Indeterminate(error) => {
                Box::pin(self.settle_failure(request, lease, Ending::Indeterminate, error, renewal))
                    .await
            }
        }
    }

    async fn record(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        outcome: Arc<Outcome>,
        renewal: LeaseRenewal,
    ) -> CallResult {
        let ttl = match outcome.as_failure() {
            None => self.policy.retention,
            Some(failure) => {
                telemetry::failed(&request.key, class_of(&failure.kind));
                if !self.is_recorded(failure) {
                    return Box::pin(self.release_unrecorded(request, lease, outcome, renewal))
                        .await;
                }
                self.policy.failure_retention
            }
        };
        let limit = self.policy.max_outcome_bytes.min(self.inner.info.max_outcome_bytes);
        let recording = record(
            self.inner.store.clone(),
            CompleteRequest { owner: lease.owner, outcome: outcome.clone().within(limit) },
            self.policy.record_budget,
            renewal,
        );
        let reply = self.persist(Box::pin(recording)).await;
        let stored = match reply {
            Some(Ok(Completion::Recorded)) => {
                telemetry::recorded(&request.key, ttl);
                true
            }
            Some(Ok(Completion::Superseded(current))) => {
                telemetry::superseded(&request.key);
                return Box::pin(self.superseded_result(request, current)).await;
            }
            Some(Ok(Completion::Missing) | Err(_)) | None => false,
        };
        Ok(RawAnswer { value: outcome, replayed: false, stored, attempt: lease.attempt })
    }

    /// A final failure that the policy does not record: the next request tries again.
    async fn release_unrecorded(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        outcome: Arc<Outcome>,
        renewal: LeaseRenewal,
    ) -> CallResult {
        if let Released::Superseded(current) = self.release(lease, Ending::Retry, renewal).await {
            telemetry::superseded(&request.key);
            return self.superseded_result(request, current).await;
        }
        Ok(RawAnswer { value: outcome, replayed: false, stored: false, attempt: lease.attempt })
    }

    async fn settle_failure(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        ending: Ending,
        error: WorkError,
        renewal: LeaseRenewal,
    ) -> CallResult {
        telemetry::failed(&request.key, error.class.unwrap_or(ErrorClass::Unknown));
        let error = WorkError { ending: Some(ending), ..error };
        match self.release(lease, ending, renewal).await {
            Released::Free => Err(self.retry_of(error, lease.attempt, Duration::ZERO)),
            Released::NoReply => Err(self.retry_of(error, lease.attempt, lease.length)),
            Released::Unknown => Err(RunError::Unknown),
            Released::Superseded(current) => {
                telemetry::superseded(&request.key);
                self.superseded_result(request, current).await
            }
        }
    }

    /// T8 or T9. If the store does not reply, the lease ends by itself.
    async fn release(&self, lease: &Lease, ending: Ending, renewal: LeaseRenewal) -> Released {
        let (owner, backoff) = (lease.owner, self.policy.backoff);
        let (store, budget) = (self.inner.store.clone(), self.policy.record_budget);
        let stuck = self.inner.stuck.clone();
        let release = async move {
            let _renewal = renewal;
            let released = match ending {
                Ending::NoEffect => release(&*store, budget, owner, Effect::None).await,
                Ending::Final | Ending::Retry => {
                    release(&*store, budget, owner, Effect::Possible).await
                }
                Ending::Indeterminate => {
                    let request = AbandonRequest { owner, backoff };
                    let (reply, tries) = retry(budget, || store.abandon(&request)).await;
                    reply.map(|reply| Released::from(reply).after(tries))
                }
            };
            // Here and not in the caller, which may be gone before the store replies.
            if let Ok(Released::Unknown) = released {
                stuck.abandoned(&owner.key);
            }
            released
        };
        match self.persist(Box::pin(release)).await {
            Some(Ok(released)) => released,
            Some(Err(_)) | None => Released::NoReply,
        }
    }

    pub(super) fn retry_of(&self, error: WorkError, attempt: u32, at_least: Duration) -> RunError {
        let ending = error.ending.unwrap_or(Ending::Retry);
        let retry_after = match ending {
            Ending::Indeterminate => at_least.max(self.policy.backoff),
            Ending::Final | Ending::NoEffect | Ending::Retry => at_least,
        };
        let class = error.class.unwrap_or(ErrorClass::Unknown);
        RunError::Retry(Retry { class, ending, attempt, retry_after, error: error.error.into() })
    }

    /// Calls the user's predicate. If it panics, the failure is recorded, since it is final.
    fn is_recorded(&self, failure: &Failure) -> bool {
        let picks = || self.policy.record_failures.picks(failure);
        panic::catch_unwind(AssertUnwindSafe(picks)).unwrap_or(true)
    }

    /// Brings an owner's last step to its end, even if the caller goes away; the step renews its lease until then. The
    /// caller waits for a part of that time only: `None` means that the step is still being tried.
    async fn persist<A: Send + 'static>(
        &self,
        mut step: BoxFuture<'static, Result<A>>,
    ) -> Option<Result<A>> {
        if let Poll::Ready(reply) = background::poll_once(&mut step).await {
            return Some(reply);
        }
        let (patience, tasks) = (self.policy.wait.max(MIN_PATIENCE), self.inner.tasks.clone());
        // A shutdown also waits for a step that is polled here.
        let _polled_here = tasks.token();
        let continue_with = Box::new(move |step| drop(tasks.spawn_on(step, background::handle())));
        let reply = Box::pin(ContinueOnDrop::new(step, continue_with).timeout(patience)).await?;
        let panicked = || Err(Error::new(ErrorKind::Unavailable, "the store panicked"));
        Some(reply.unwrap_or_else(panicked))
    }
}

/// T7. Logs and counts an outcome that could not be recorded.
async fn record(
    store: Arc<dyn Store>,
    request: CompleteRequest,
    budget: Duration,
    renewal: LeaseRenewal,
) -> Result<Completion> {
    let started = Instant::now();
    // The owner keeps its outcome while the store stalls: no other caller can get the key until the store answers.
    let is_silent = || Instant::now() < renewal.ends_at() && !renewal.was_answered_since(started);
    let (reply, _) = retry_while(is_silent, budget, || (*store).complete(&request)).await;
    drop(renewal);
    match &reply {
        Ok(Completion::Recorded | Completion::Superseded(_)) => {}
        Ok(Completion::Missing) => {
            telemetry::unstored(&request.owner.key, "the store lost its record");
        }
        Err(error) => telemetry::unstored(&request.owner.key, &error.to_string()),
    }
    reply
}

/// T8.
async fn release(
    store: &dyn Store,
    budget: Duration,
    owner: Owner,
    effect: Effect,
) -> Result<Released> {
    let request = ReleaseRequest { owner, effect };
    let (reply, tries) = retry(budget, || store.release(&request)).await;
    reply.map(|reply| Released::from(reply).after(tries))
}

/// Repeats a step while the store does not reply, and returns how often it was repeated.
pub(super) async fn retry<A, Fut: Future<Output = Result<A>>>(
    budget: Duration,
    step: impl Fn() -> Fut,
) -> (Result<A>, u32) {
    retry_while(|| false, budget, step).await
}

/// As [`retry`]. The budget begins with the first reply of a store that was silent until then.
async fn retry_while<A, Fut: Future<Output = Result<A>>>(
    is_silent: impl Fn() -> bool,
    budget: Duration,
    step: impl Fn() -> Fut,
) -> (Result<A>, u32) {
    let mut budget_ends_at = (!is_silent()).then(|| Instant::now() + budget);
    let mut tries = 0;
    loop {
        let reply = step().await;
        let Err(error) = &reply else { return (reply, tries) };
        if !error.kind().is_indefinite() || !is_silent() {
            budget_ends_at.get_or_insert_with(|| Instant::now() + budget);
        }
        let is_over = budget_ends_at.is_some_and(|at| Instant::now() >= at);
        if !error.kind().is_retryable() || is_over {
            return (reply, tries);
        }
        pause(&mut tries).await;
    }
}

impl Released {
    /// An owner that repeated its request may see the change that its own first request made.
    fn after(self, tries: u32) -> Self {
        match self {
            Self::Superseded(Current::Open) if tries > 0 => Self::Free,
            Self::Superseded(Current::Unknown) if tries > 0 => Self::Unknown,
            other => other,
        }
    }
}

impl From<Release> for Released {
    fn from(reply: Release) -> Self {
        match reply {
            Release::Open | Release::Missing => Self::Free,
            Release::Unknown => Self::Unknown,
            Release::Superseded(current) => Self::Superseded(current),
        }
    }
}

impl From<Abandonment> for Released {
    fn from(reply: Abandonment) -> Self {
        match reply {
            Abandonment::Lapsing | Abandonment::Missing => Self::Free,
            Abandonment::Unknown => Self::Unknown,
            Abandonment::Superseded(current) => Self::Superseded(current),
        }
    }
}
