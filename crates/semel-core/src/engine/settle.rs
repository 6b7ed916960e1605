//! Settles an attempt: records its outcome, or gives the key back.

use std::{
    future::Future,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::{
    Engine, RawAnswer, Retry, RunError, renewal::Keeper, singleflight::Landing,
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

/// A healthy store has this long to record before the caller is told that it has not.
pub(super) const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// What became of a key that was given back.
enum GivenBack {
    Free,
    /// The store did not say: the lease runs out by itself.
    Unanswered,
    Unknown,
    Superseded(Current),
}

impl Engine {
    pub(super) async fn settle(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        verdict: Verdict,
        keeper: Keeper,
    ) -> Landing {
        match verdict {
            Verdict::Final(outcome) => self.record(request, lease, Arc::new(outcome), keeper).await,
            Verdict::NoEffect(error) => {
                Box::pin(self.give_back(request, lease, Ending::NoEffect, error, keeper)).await
            }
            Verdict::Retry(error) => {
                Box::pin(self.give_back(request, lease, Ending::Retry, error, keeper)).await
            }
            Verdict::Indeterminate(error) => {
                Box::pin(self.give_back(request, lease, Ending::Indeterminate, error, keeper)).await
            }
        }
    }

    async fn record(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        outcome: Arc<Outcome>,
        keeper: Keeper,
    ) -> Landing {
        let ttl = match outcome.as_failure() {
            None => self.policy.retention,
            Some(failure) => {
                telemetry::failed(&request.key, class_of(&failure.kind));
                if !self.picks(failure) {
                    return Box::pin(self.leave_unrecorded(request, lease, outcome, keeper)).await;
                }
                self.policy.failure_retention
            }
        };
        let limit = self.policy.max_outcome_bytes.min(self.inner.info.max_outcome_bytes);
        let recording = record(
            self.inner.store.clone(),
            CompleteRequest { owner: lease.owner, outcome: outcome.clone().within(limit) },
            self.policy.record_budget,
            keeper,
        );
        let answer = self.persist(Box::pin(recording)).await;
        let stored = match answer {
            Some(Ok(Completion::Recorded)) => {
                telemetry::recorded(&request.key, ttl);
                true
            }
            Some(Ok(Completion::Superseded(current))) => {
                telemetry::superseded(&request.key);
                return Box::pin(self.yield_to(request, current)).await;
            }
            Some(Ok(Completion::Missing) | Err(_)) | None => false,
        };
        Ok(RawAnswer { value: outcome, replayed: false, stored, attempt: lease.attempt })
    }

    /// A final failure that the policy does not record: the next request tries again.
    async fn leave_unrecorded(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        outcome: Arc<Outcome>,
        keeper: Keeper,
    ) -> Landing {
        if let GivenBack::Superseded(current) = self.release(lease, Ending::Retry, keeper).await {
            telemetry::superseded(&request.key);
            return self.yield_to(request, current).await;
        }
        Ok(RawAnswer { value: outcome, replayed: false, stored: false, attempt: lease.attempt })
    }

    async fn give_back(
        &self,
        request: &ClaimRequest,
        lease: &Lease,
        ending: Ending,
        error: WorkError,
        keeper: Keeper,
    ) -> Landing {
        telemetry::failed(&request.key, error.class.unwrap_or(ErrorClass::Unknown));
        let error = WorkError { ending: Some(ending), ..error };
        match self.release(lease, ending, keeper).await {
            GivenBack::Free => Err(self.retry_of(error, lease.attempt, Duration::ZERO)),
            GivenBack::Unanswered => Err(self.retry_of(error, lease.attempt, lease.length)),
            GivenBack::Unknown => Err(RunError::Unknown),
            GivenBack::Superseded(current) => {
                telemetry::superseded(&request.key);
                self.yield_to(request, current).await
            }
        }
    }

    /// T8 or T9. When the store does not answer, the lease runs out by itself.
    async fn release(&self, lease: &Lease, ending: Ending, keeper: Keeper) -> GivenBack {
        let (owner, backoff) = (lease.owner, self.policy.backoff);
        let (store, budget) = (self.inner.store.clone(), self.policy.record_budget);
        let stuck = self.inner.stuck.clone();
        let release = async move {
            let _keeper = keeper;
            let given_back = match ending {
                Ending::NoEffect => release(&*store, budget, owner, Effect::None).await,
                Ending::Final | Ending::Retry => {
                    release(&*store, budget, owner, Effect::Possible).await
                }
                Ending::Indeterminate => {
                    let request = AbandonRequest { owner, backoff };
                    let (answer, tries) = retry(budget, || store.abandon(&request)).await;
                    answer.map(|answer| GivenBack::from(answer).after(tries))
                }
            };
            // Here and not in the caller, which may be gone before the store answers.
            if let Ok(GivenBack::Unknown) = given_back {
                stuck.abandoned(&owner.key);
            }
            given_back
        };
        match self.persist(Box::pin(release)).await {
            Some(Ok(given_back)) => given_back,
            Some(Err(_)) | None => GivenBack::Unanswered,
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

    /// Asks the user's predicate. If that panics the failure is recorded: it is final, after all.
    fn picks(&self, failure: &Failure) -> bool {
        let pick = || self.policy.record_failures.picks(failure);
        panic::catch_unwind(AssertUnwindSafe(pick)).unwrap_or(true)
    }

    /// Brings an owner's last step to its end, whoever goes away; the step holds the keeper of its
    /// lease until then. The caller waits for a part of that only: `None` means it is still being tried.
    async fn persist<A: Send + 'static>(
        &self,
        mut step: BoxFuture<'static, Result<A>>,
    ) -> Option<Result<A>> {
        if let Poll::Ready(answer) = background::poll_once(&mut step).await {
            return Some(answer);
        }
        let (patience, tasks) = (self.policy.wait.max(MIN_PATIENCE), self.inner.tasks.clone());
        // A shutdown waits for what is polled here too.
        let _polled_here = tasks.token();
        let continue_with = Box::new(move |step| drop(tasks.spawn_on(step, background::handle())));
        let answer = Box::pin(ContinueOnDrop::new(step, continue_with).within(patience)).await?;
        let panicked = || Err(Error::new(ErrorKind::Unavailable, "the store panicked"));
        Some(answer.unwrap_or_else(panicked))
    }
}

/// T7, with a cry when the outcome could not be recorded.
async fn record(
    store: Arc<dyn Store>,
    request: CompleteRequest,
    budget: Duration,
    _keeper: Keeper,
) -> Result<Completion> {
    let (answer, _) = retry(budget, || (*store).complete(&request)).await;
    match &answer {
        Ok(Completion::Recorded | Completion::Superseded(_)) => {}
        Ok(Completion::Missing) => {
            telemetry::unstored(&request.owner.key, "the store lost its record");
        }
        Err(error) => telemetry::unstored(&request.owner.key, &error.to_string()),
    }
    answer
}

/// T8.
async fn release(
    store: &dyn Store,
    budget: Duration,
    owner: Owner,
    effect: Effect,
) -> Result<GivenBack> {
    let request = ReleaseRequest { owner, effect };
    let (answer, tries) = retry(budget, || store.release(&request)).await;
    answer.map(|answer| GivenBack::from(answer).after(tries))
}

/// Repeats a step while the store does not answer, and says how often it had to.
pub(super) async fn retry<A, Fut: Future<Output = Result<A>>>(
    budget: Duration,
    step: impl Fn() -> Fut,
) -> (Result<A>, u32) {
    let started = Instant::now();
    let mut tries = 0;
    loop {
        match step().await {
            Err(error) if error.kind().is_retryable() && started.elapsed() < budget => {
                pause(&mut tries).await;
            }
            answer => return (answer, tries),
        }
    }
}

impl GivenBack {
    /// An owner that had to ask twice may meet what its own first call left behind.
    fn after(self, tries: u32) -> Self {
        match self {
            Self::Superseded(Current::Open) if tries > 0 => Self::Free,
            Self::Superseded(Current::Unknown) if tries > 0 => Self::Unknown,
            other => other,
        }
    }
}

impl From<Release> for GivenBack {
    fn from(answer: Release) -> Self {
        match answer {
            Release::Open | Release::Missing => Self::Free,
            Release::Unknown => Self::Unknown,
            Release::Superseded(current) => Self::Superseded(current),
        }
    }
}

impl From<Abandonment> for GivenBack {
    fn from(answer: Abandonment) -> Self {
        match answer {
            Abandonment::Lapsing | Abandonment::Missing => Self::Free,
            Abandonment::Unknown => Self::Unknown,
            Abandonment::Superseded(current) => Self::Superseded(current),
        }
    }
}
