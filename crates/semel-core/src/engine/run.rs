//! `run` and `run_raw`: a call becomes the leader or a follower of its key. The leader claims the key, then runs the
//! work, replays the recorded outcome, or waits for the owner in another process.

use std::{
    future::{Future, poll_fn},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    task::{self, Poll},
    thread,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{
    Answer, Context, DetailedFingerprint, Engine, RawAnswer, RunError,
    attempt::GrantedCall,
    claim::ClaimCall,
    settle::MIN_PATIENCE,
    singleflight::{CallResult, CallRole, Leader, LeaderSubscription},
    wait_for_owner::OwnerWait,
};
use crate::{
    Claim, ClaimRequest, Error, ErrorKind, Fingerprint, Key, KeyHash, Lease, Nonce, Policy, Replay,
    Result, StoreDown, Verdict, WorkError, background,
    sync::{Instant, atomic::Ordering::SeqCst, bug, runtime::Handle},
    telemetry::{self, Tier},
};

pub(super) type BoxedWork =
    Box<dyn FnOnce(Context) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send>;

/// What the leader does after a claim.
enum AfterClaim {
    Finish(CallResult),
    RunWork(Lease),
    WaitForOwner(Duration),
    RunUnprotected,
}

impl Engine {
    /// Runs `work` once for this key, or answers with what it produced the first time.
    ///
    /// The value is recorded as JSON, and every answer is read back from that JSON, the first one too, so that the
    /// first caller gets what a retry will get. Only a value over the size limit is returned to the first caller and
    /// to no later one.
    ///
    /// # Errors
    ///
    /// [`RunError`] says why there is no value and whether a retry helps.
    pub async fn run<T, E, F, Fut>(
        &self,
        key: Key,
        fingerprint: Fingerprint,
        work: F,
    ) -> Result<Answer<T>, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned,
        E: Into<WorkError>,
    {
        let classifier = self.inner.classifier.clone();
        let work = async move |context| match work(context).await {
            Ok(value) => Verdict::success(&value),
            Err(error) => Verdict::of_error(error.into(), &*classifier),
        };
        self.run_raw(key, fingerprint, work).await?.typed()
    }

    /// [`Engine::run`] for work that makes its own [`Outcome`](crate::Outcome) and verdict. A final
    /// failure is an answer here, not an error.
    ///
    /// # Errors
    ///
    /// [`RunError`], but never [`RunError::Failed`].
    pub async fn run_raw<F, Fut>(
        &self,
        key: Key,
        fingerprint: impl Into<DetailedFingerprint>,
        work: F,
    ) -> Result<RawAnswer, RunError>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.check_open().map_err(RunError::Store)?;
        let request = Box::new(self.claim_request(&key, &fingerprint.into()));
        drop(key);
        let span = process_span(&request.key, &self.policy);
        self.lead_or_follow(request, work).instrument(span).await
    }

    async fn lead_or_follow<F, Fut>(&self, request: Box<ClaimRequest>, work: F) -> CallResult
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let key = request.key;
        match self.inner.in_flight.join((key, request.fingerprint)) {
            CallRole::Leader(leader) => self.lead(leader, request, work).await,
            CallRole::Follower(receiver) => {
                let result = Box::pin(receiver.result(self.policy.wait)).await;
                bug!(FollowerStampede => {
                    if let Err(RunError::Retry(_)) = result {
                        return Box::pin(self.lead_or_follow(request, work)).await;
                    }
                });
                if result.is_ok() {
                    telemetry::replayed(&key, Tier::Wait, None);
                }
                result
            }
            CallRole::TooManyFollowers => Err(too_many_followers()),
        }
    }

    /// Claims the key and acts on the reply. Each future is first polled once in the caller, and one that is ready then
    /// costs no task: a replay, or work that does not wait over a store that does not. Otherwise a task takes over,
    /// which does not end when the caller goes away.
    async fn lead<F, Fut>(&self, leader: Leader, request: Box<ClaimRequest>, work: F) -> CallResult
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let mut claiming = Box::pin(self.clone().claim(request));
        let Ok(claim) = AssertUnwindSafe(background::poll_once(&mut claiming)).catch_unwind().await
        else {
            let error = Error::new(ErrorKind::Unavailable, "the store panicked");
            return leader.finish(Err(RunError::Store(error)));
        };
        let work = move || -> BoxedWork { Box::new(move |context| Box::pin(work(context))) };
        let (subscription, engine) = (leader.subscription(), self.clone());
        let mut call: BoxFuture<'static, Option<CallResult>> = match claim {
            Poll::Pending => {
                let work = work();
                let call = async move { engine.finish_call(leader, claiming.await, work).await };
                return self.continue_in_task(subscription, Box::pin(call)).await;
            }
            Poll::Ready(claim) => match self.after_claim(&claim) {
                AfterClaim::Finish(result) => return leader.finish(result),
                AfterClaim::RunWork(lease) => {
                    let granted = Box::new(GrantedCall { leader, lease, claim });
                    Box::pin(engine.run_attempt(granted, work()))
                }
                // The leader subscribes before the task starts: a call without a receiver counts as abandoned.
                AfterClaim::WaitForOwner(_) => {
                    let call = Box::pin(engine.finish_call(leader, claim, work()));
                    return self.continue_in_task(subscription, call).await;
                }
                AfterClaim::RunUnprotected => Box::pin(engine.finish_call(leader, claim, work())),
            },
        };
        // A shutdown also waits for work that is polled here.
        let polled_here = self.inner.tasks.token();
        bug!(WorkRunInCallersTask => {
            drop(polled_here);
            return call.await.unwrap_or(Err(RunError::Interrupted));
        });
        match poll_fn(|cx| Poll::Ready(poll_caught(call.as_mut(), cx))).await {
            Ok(Poll::Ready(result)) => return result.unwrap_or(Err(RunError::Interrupted)),
            Ok(Poll::Pending) => {}
            // As in a task: the followers get their error when the call is dropped.
            Err(_panic) => return Err(RunError::Interrupted),
        }
        // The call cannot finish between the poll and here: only this function polls it.
        let result = self.continue_in_task(subscription, call);
        drop(polled_here);
        result.await
    }

    /// The call continues in a task of its own, and its leader waits for the result like a follower.
    fn continue_in_task(
        &self,
        subscription: LeaderSubscription,
        call: BoxFuture<'static, Option<CallResult>>,
    ) -> BoxFuture<'static, CallResult> {
        let receiver = subscription.subscribe();
        self.inner.tasks.spawn(call.in_current_span());
        Box::pin(receiver.result(self.policy.wait))
    }

    /// Brings a call to its result: runs the work, or waits for the owner in another process. Returns what all
    /// receivers got; `None` when the last of them had gone away.
    pub(super) async fn finish_call(
        self,
        mut leader: Leader,
        mut claim: ClaimCall,
        work: BoxedWork,
    ) -> Option<CallResult> {
        let mut was_slow = false;
        loop {
            match self.after_claim(&claim) {
                AfterClaim::Finish(result) => return Some(leader.finish(result)),
                // The lease may end before the work has begun: another claim with the same nonce extends it (T2).
                AfterClaim::RunWork(lease) if claim.sent.elapsed() >= lease.length * 4 / 5 => {
                    // Not after the first slow claim: this process itself may have been suspended.
                    if was_slow && claim.began.elapsed() >= self.policy.wait.max(MIN_PATIENCE) {
                        return Some(leader.finish(Err(RunError::Store(too_slow(lease.length)))));
                    }
                    was_slow = true;
                    let patience = self.patience(Instant::now());
                    Box::pin(self.resend_claim(&mut claim, patience)).await;
                    continue;
                }
                AfterClaim::RunWork(lease) => {
                    let granted = Box::new(GrantedCall { leader, lease, claim });
                    return Box::pin(self.run_attempt(granted, work)).await;
                }
                AfterClaim::RunUnprotected => {
                    // The work will run, so a key that was granted must not be released as untouched.
                    claim.release_on_drop.disarm();
                    let key = claim.request.key;
                    return Some(Box::pin(self.run_unprotected(leader, key, work)).await);
                }
                AfterClaim::WaitForOwner(remaining) => leader.set_owned_elsewhere(remaining),
            }
            leader = match Box::pin(self.wait_for_owner(leader, &claim.request)).await {
                OwnerWait::Abandoned => return None,
                OwnerWait::Finished(leader, result) => return Some(leader.finish(result)),
                OwnerWait::LeaseExpired(leader) => leader,
            };
            if let Err(error) = self.check_open() {
                return Some(leader.finish(Err(RunError::Store(error))));
            }
            let request = Box::new(ClaimRequest { nonce: Nonce::random(), ..*claim.request });
            claim = Box::pin(self.clone().claim(request)).await;
        }
    }

    fn after_claim(&self, claim: &ClaimCall) -> AfterClaim {
        let key = &claim.request.key;
        if let Ok(reply) = &claim.reply {
            self.inner.stuck.claim_replied(key, reply);
        }
        AfterClaim::Finish(match &claim.reply {
            Ok(Claim::Granted(lease)) => return AfterClaim::RunWork(*lease),
            Ok(Claim::Busy { remaining }) => return AfterClaim::WaitForOwner(*remaining),
            Ok(Claim::Replay(replay)) => replay_result(key, replay, tier_of(replay)),
            Ok(Claim::Mismatch) => {
                telemetry::mismatched(key);
                Err(RunError::Mismatch)
            }
            Ok(Claim::Unknown) => Err(RunError::Unknown),
            Ok(Claim::Dead) => Err(RunError::Dead),
            Ok(Claim::Gone) => Err(RunError::Gone),
            Ok(Claim::Released) => Err(RunError::Busy { retry_after: self.policy.backoff }),
            Err(error) if self.runs_unprotected_after(error) => return AfterClaim::RunUnprotected,
            Err(error) => Err(RunError::Store(error.clone())),
        })
    }

    fn runs_unprotected_after(&self, error: &Error) -> bool {
        self.policy.store_down == StoreDown::RunUnprotected && error.kind().is_retryable()
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.inner.closed.load(SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the engine is shutting down"));
        }
        if Handle::try_current().is_err() {
            return Err(Error::invalid("no tokio runtime: call the engine from inside one"));
        }
        Ok(())
    }
}

/// The result may come at any moment, so the retry waits for the number of followers to fall, not for a lease.
pub(super) const fn too_many_followers() -> RunError {
    RunError::Busy { retry_after: Duration::from_secs(1) }
}

/// A store that panics must not end its caller.
fn poll_caught<F: Future + ?Sized>(
    call: Pin<&mut F>,
    cx: &mut task::Context<'_>,
) -> thread::Result<Poll<F::Output>> {
    panic::catch_unwind(AssertUnwindSafe(|| call.poll(cx)))
}

/// The result of a replay. An outcome that this process cannot unseal is an error: it cannot be returned, and the work
/// must not run again because of it.
pub(super) fn replay_result(key: &KeyHash, replay: &Replay, tier: Tier) -> CallResult {
    if replay.outcome.is_sealed() {
        let what = format!(
            "record {key}: its outcome is sealed, and this process has no seal keys; give it those \
             that the others have"
        );
        return Err(RunError::Store(Error::new(ErrorKind::Corrupt, what)));
    }
    telemetry::replayed(key, tier, Some(replay.age));
    let Replay { outcome: value, attempt, .. } = replay.clone();
    Ok(RawAnswer { value, replayed: true, stored: true, attempt })
}

pub(super) const fn tier_of(replay: &Replay) -> Tier {
    if replay.cached { Tier::Cache } else { Tier::Store }
}

pub(super) fn process_span(key: &KeyHash, policy: &Policy) -> tracing::Span {
    tracing::info_span!(
        "idempotency.process",
        idempotency.key = %key,
        idempotency.cache_hit = tracing::field::Empty,
        idempotency.ttl = policy.retention.as_secs(),
    )
}

fn too_slow(lease: Duration) -> Error {
    let subject =
        format!("the store takes too long to claim a key for a lease of {lease:?}; make it longer");
    Error::new(ErrorKind::Unavailable, subject)
}
